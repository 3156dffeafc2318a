-- exported: keep what a sink returned, bury what it will not take, and move the position, in one step.
-- KEYS[1] eb:{p}:export:<sink>  HASH   KEYS[2] eb:{p}:later:<sink>  ZSET
-- KEYS[3] eb:{p}:dead  STREAM          KEYS[4] eb:{p}:meta  HASH
-- KEYS[5…] eb:{p}:exported:…  STRING   what the sink returned, an event each
-- ARGV[1] consumer
-- ARGV[2] position  version up to which everything is settled, '' does not move it
-- ARGV[3] life_ms   how long what it returned is kept
-- ARGV[4] msgpack [figures to set {field: text}, to raise {field: n}, values of KEYS[5…] ('' forgets, true keeps what
--         is there for another life_ms), later {member: ms}, no longer later [member, …],
--         burials [[cause, delivery id, group, key, why, bytes], …]]
-- Reply   1 | 0 this consumer no longer holds the lease: nothing was done
-- Writes  all of them; allowed when memory is full, but makes no new KEYS[5…] then.

local FIXED_EXPORT = 4

local function exported(keys, args)
  local export, later, dead, meta = keys[1], keys[2], keys[3], keys[4]
  local consumer, position, life_ms = args[1], args[2], integer_text(number(args[3], 'life_ms'))
  local given = cmsgpack.unpack(args[4])
  local figures, raised, values, added, done, burials = unpack(given, 1, 6)

  if redis.call('HGET', export, 'holder') ~= consumer then return 0 end
  local full = memory_full(math.floor(now_us() / 1000))
  local dead_bytes = tonumber(redis.call('HGET', meta, 'dead_bytes') or '0')

  if position ~= '' then redis.call('HSET', export, 'position', position) end
  for field, text in pairs(figures) do redis.call('HSET', export, field, text) end
  for field, n in pairs(raised) do redis.call('HINCRBY', export, field, n) end
  for i, value in ipairs(values) do
    local key = keys[FIXED_EXPORT + i]
    if value == '' then redis.call('DEL', key)
    elseif value == true then redis.call('PEXPIRE', key, life_ms)
    elseif full then redis.call('SET', key, value, 'PX', life_ms, 'XX')
    else redis.call('SET', key, value, 'PX', life_ms) end
  end
  for member, ms in pairs(added) do redis.call('ZADD', later, integer_text(ms), member) end
  for _, member in ipairs(done) do
    redis.call('ZREM', later, member)
    -- What has a hyphen is the id of a dead entry, which has been written now.
    if string.find(member, '-', 1, true) and redis.call('XDEL', dead, member) == 1 then
      redis.call('HINCRBY', meta, 'replayed', '1')
    end
  end
  for _, burial in ipairs(burials) do
    local cause, id, group, key, why, bytes = unpack(burial, 1, 6)
    redis.call('XADD', dead, '*', 'id', id, 'group', group, 'cause', cause, 'deaths', '0',
      'at', integer_text(dead_bytes), 'k', key, 'why', why, 'b', bytes)
    dead_bytes = dead_bytes + #bytes
    redis.call('HSET', meta, 'dead_bytes', integer_text(dead_bytes))
    redis.call('HINCRBY', meta, 'buried:' .. cause, 1)
  end
  return 1
end

redis.register_function{ function_name = 'eb1_exported', callback = exported, flags = { 'allow-oom' } }
