-- notify_settle: store alerts and groups with the positions up to which changes were taken in, in one step.
-- Call    NotifyStore.settle in notifications.py
-- KEYS[1] eb:{p}:notify  HASH  of partition 0   KEYS[2] eb:{p}:index:notify  ZSET   KEYS[3] eb:{p}:note:<of>  STRING
-- KEYS[4] eb:{p}:spoiled  HASH
-- KEYS[5…] eb:{p}:notify:<name>  STRING  an alert or a group each
-- ARGV[1] term      of the caller's lease
-- ARGV[2] number    of the call within the term: one that arrives after a later one does nothing
-- ARGV[3] life_ms   how long alerts and groups live from their last write
-- ARGV[4] msgpack   [values of KEYS[5…] ('' deletes), fields of KEYS[1] {field: text}, '' deletes]
-- Reply   1 | 0 another worker has taken over: nothing was done
-- Writes  KEYS 1, 2 and 5…; allowed when memory is full: the state is bounded, and a lost confirmation is a repeat.

local FIXED_NOTIFY = 4

-- Counts corrupt values of KEYS[5…]. The values are msgpack arrays that begin with the id in the key.
local function check_state(keys, count)
  if count == 0 then return end
  local had, missing = redis.call('MGET', unpack(keys, FIXED_NOTIFY + 1)), {}
  for i = 1, count do
    local key = keys[FIXED_NOTIFY + i]
    if not had[i] then missing[#missing + 1] = key
    elseif not find(sub(had[i], 1, 24), string.match(key, ':notify:.(.*)$'), 1, true) then note_corrupt(key) end
  end
  note_other_types(missing)
end

local function notify_settle(keys, args)
  local notify, index, note = keys[1], keys[2], keys[3]
  local life_ms = whole(args[3], 'life_ms', 1, MOST)
  local given = cmsgpack.unpack(args[4])
  local values, fields = given[1], given[2]

  finish_noted(note)
  local known = ask('HMGET', notify, 'term', 'holder', 'number')
  if known[1] ~= args[1] or not known[2] then return 0 end
  local number = whole(args[2], 'number', 1, MOST)
  if number <= (counter(known[3]) or 0) then return 1 end
  check_state(keys, #values)
  local score = integer_text(math.floor(now_us() / 1000) + life_ms)
  local strings, steps, written, gone, deleted = {}, {}, {}, {}, {}
  for i, value in ipairs(values) do
    local key = keys[FIXED_NOTIFY + i]
    local name = string.match(key, ':notify:(.*)$')
    if value == '' then
      gone[#gone + 1], deleted[#deleted + 1] = name, key
    else
      strings[#strings + 1], strings[#strings + 2] = key, value
      written[#written + 1], written[#written + 2] = score, name
      step(steps, 'PEXPIRE', key, integer_text(life_ms))
    end
  end
  step_each(steps, deleted, 'DEL')
  step_each(steps, gone, 'ZREM', index)
  step_each(steps, written, 'ZADD', index)
  step(steps, 'HSET', notify, 'number', integer_text(number))
  for field, text in pairs(fields) do
    if text == '' then step(steps, 'HDEL', notify, field) else step(steps, 'HSET', notify, field, text) end
  end
  commit(note, strings, nil, steps)
  return 1
end

register('notify_settle', naming_corrupt(notify_settle, 4), { 'allow-oom' })
