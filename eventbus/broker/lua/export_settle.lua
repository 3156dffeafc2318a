-- export_settle: store the answers of a sink, bury the events that it does not take, and move the position, in one step.
-- Call    ExportStore.settle in exports.py
-- KEYS[1] eb:{p}:export:<sink>  HASH   KEYS[2] eb:{p}:later:<sink>  ZSET
-- KEYS[3] eb:{p}:dead  STREAM          KEYS[4] eb:{p}:meta  HASH     KEYS[5] eb:{p}:note:<of>  STRING  of the sink
-- KEYS[6] eb:{p}:spoiled  HASH
-- KEYS[7…] eb:{p}:exported:…  STRING   the answer of the sink, an event each
-- ARGV[1] consumer
-- ARGV[2] position  version up to which everything is settled, '' does not move it
-- ARGV[3] life_ms   of the answers
-- ARGV[4] msgpack [figures to set {field: text}, to raise {field: n}, values of KEYS[7…] ('' deletes, true keeps the stored
--         one for another life_ms), later {member: ms}, no longer later [member, …],
--         burials [[cause, delivery id, group, key, why, bytes], …]]
-- ARGV[5] call      a unique name: a repeated call does nothing again
-- Reply   1 | 0 this consumer no longer holds the export: nothing was done
-- Writes  all of them; allowed when memory is full, but makes no new KEYS[7…] then.

local FIXED_EXPORT = 6

local function unpack_returned(packed)
  if not packed then return nil, false end
  local ok, r = pcall(cmsgpack.unpack, packed)
  if not ok or type(r) ~= 'table' or type(r[1]) ~= 'string' or type(r[3]) ~= 'number' then return nil, true end
  return r, false
end

-- Puts the answers of the sink into *strings*, and their deletions and lives into *steps*.
local function keep_returned(keys, values, life_ms, full, strings, steps)
  local had = #values > 0 and redis.call('MGET', unpack(keys, FIXED_EXPORT + 1)) or {}
  local missing = {}
  for i = 1, #values do
    if had[i] then unpack_key(keys[FIXED_EXPORT + i], had[i], unpack_returned)
    else missing[#missing + 1] = keys[FIXED_EXPORT + i] end
  end
  note_other_types(missing)
  for i, value in ipairs(values) do
    local key = keys[FIXED_EXPORT + i]
    if value == '' then step(steps, 'DEL', key)
    elseif value == true or had[i] or not full then
      if value ~= true then strings[#strings + 1], strings[#strings + 2] = key, value end
      step(steps, 'PEXPIRE', key, life_ms)
    end
  end
end

-- Removes members from *later*. A member with a hyphen is the id of a dead letter that has been written now. Returns the
-- number of these.
local function step_done(steps, later, dead, done)
  local replayed = 0
  step_each(steps, done, 'ZREM', later)
  for _, member in ipairs(done) do
    if string.find(member, '-', 1, true) and #ask('XRANGE', dead, member, member) == 1 then
      step(steps, 'XDEL', dead, member)
      replayed = replayed + 1
    end
  end
  return replayed
end

local function export_settle(keys, args)
  local export, later, dead, meta, note = keys[1], keys[2], keys[3], keys[4], keys[5]
  local consumer, position, life_ms = args[1], args[2], integer_text(number(args[3], 'life_ms'))
  local given = cmsgpack.unpack(args[4])
  local figures, raised, values, added, done, burials = unpack(given, 1, 6)

  finish_noted(note)
  local known = ask('HMGET', export, 'holder', 'call')
  if known[1] ~= consumer then return 0 end
  if known[2] == args[5] then return 1 end
  local now_ms = math.floor(now_us() / 1000)
  local strings, steps = {}, {}
  keep_returned(keys, values, life_ms, memory_full(now_ms), strings, steps)
  step(steps, 'HSET', export, 'call', args[5])
  if position ~= '' then step(steps, 'HSET', export, 'position', position) end
  for field, text in pairs(figures) do step(steps, 'HSET', export, field, text) end
  for member, ms in pairs(added) do step(steps, 'ZADD', later, integer_text(ms), member) end
  step_raised(steps, export, raised)
  local sink = string.match(export, ':(export:.*)$')
  step_raised(steps, meta, { ['replayed:' .. sink] = step_done(steps, later, dead, done) })
  if #burials > 0 then
    local b = new_burials(dead, now_ms)
    for _, burial in ipairs(burials) do
      local cause, id, group, key, why, bytes = unpack(burial, 1, 6)
      step_burial(steps, b, group, id, cause, '0', bytes, { 'k', key, 'why', why })
    end
    step_raised(steps, meta, b.raised)
  end
  commit(note, strings, nil, steps)
  return 1
end

register('export_settle', naming_corrupt(export_settle, 6), { 'allow-oom' })
