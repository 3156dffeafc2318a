-- announce: note that processes of this build use the bus, and which formats and codecs they read.
-- Call    Functions.announce, announce_command in functions.py
-- KEYS[1] builds  HASH  of partition 0
-- ARGV[1] role     worker | recorder        ARGV[2] name     of the process
-- ARGV[3] formats  that it reads, as 2,3    ARGV[4] codecs   that it reads, as 0,1
-- Reply   'OK'
-- Writes  KEYS 1: <build>/<role> → '<ms> <formats> <codecs> <name>', and deletes fields older than thirty days.
--         Allowed when memory is full, or a build in use would look unused.

local LIFE_MS = 30 * 86400 * 1000

local function announce(keys, args)
  local now_ms = math.floor(now_us() / 1000)
  local field, name = BUILD .. '/' .. args[1], string.sub(args[2], 1, 200)
  local builds, old = ask('HGETALL', keys[1]), {}
  for i = 1, #builds, 2 do
    local at_ms = tonumber(string.match(builds[i + 1], '^(%d+) ') or '0')
    if at_ms < now_ms - LIFE_MS and builds[i] ~= field then old[#old + 1] = builds[i] end
  end
  for n = 1, math.min(#old, MANY) do redis.call('HDEL', keys[1], old[n]) end
  redis.call('HSET', keys[1], field, integer_text(now_ms) .. ' ' .. args[3] .. ' ' .. args[4] .. ' ' .. name)
  return 'OK'
end

register('announce', announce, { 'allow-oom' })
