-- open: create the stream, versions and group of a partition, unless they exist.
-- Call    Functions.open in functions.py
-- KEYS[1] eb:{p}:incoming  STREAM    KEYS[2] eb:{p}:incoming:meta  HASH    KEYS[3] eb:{p}:meta  HASH
-- KEYS[4] eb:{p}:changes:<kind>  STREAM (read: its last id)   KEYS[5] eb:{p}:version:<kind>  STRING   KEYS[6] eb:{p}:note:<of>  STRING
-- KEYS[7] eb:{p}:spoiled  HASH
-- ARGV[1] generation   random, 16 hex; used only if the stream has none
-- ARGV[2] group        to create, '' for none       ARGV[3] policy  WAIT | DROP
-- ARGV[4] start        '0' the oldest entry, '$' from now on; an existing group or floor wins
-- ARGV[5] bus          id of the bus that the partition belongs to, as the caller has just read it; '' leaves it open
-- Reply   {generation, 1 if the stream was created, 1 if the group was created}
-- Writes  KEYS 1-3 and 5-7; allowed when memory is full, since the workers that start then will drain it.
--         A group that is gone while its floor is stored is recreated at its floor. Missing events from there on, even those
--         of the whole stream, are counted in lost:<group>, and as unreported until `trim` reports them. Floors are up to a second old, so up to a second of handled events may be counted with them.

-- Counts the lost events of *group*: *from* and *to* are running numbers, nil if unknown.
local function count_destroyed(raised, group, from, to)
  local lost = from and to and to - from or 0
  if lost <= 0 then return end
  raised['lost:' .. group] = (raised['lost:' .. group] or 0) + lost
  raised['untold:' .. group] = (raised['untold:' .. group] or 0) + lost
end

-- Creates a stream that is new or was destroyed: every group begins at its beginning. Its state is deleted first and written
-- last, so that no batch is published in between.
local function plan_stream(steps, incoming, incoming_meta, meta, generation)
  local raised = {}
  local events = tonumber(ask('HGET', incoming_meta, 'events') or '0') or 0
  local known = ask('HGETALL', meta)
  step(steps, 'DEL', incoming_meta)
  step(steps, 'STREAM', incoming)
  for i = 1, #known, 2 do
    local group = string.match(known[i], '^floor:(.*)$')
    if group then
      count_destroyed(raised, group, tonumber(ask('HGET', meta, 'floor_to:' .. group) or ''), events)
      step(steps, 'HSET', meta, 'floor:' .. group, '0-0', 'floor_to:' .. group, '0')
    end
  end
  step_raised(steps, meta, raised)
  step(steps, 'HSET', incoming_meta, 'generation', generation, 'events', '0', 'bytes', '0', 'last', '0-0', 'length', '0')
  step(steps, 'HSET', meta, 'generation', generation)
end

local function plan_group(steps, incoming, incoming_meta, meta, group, policy, start, made)
  local m = ask('HMGET', meta, 'floor:' .. group, 'floor_to:' .. group)
  local floor, raised = m[1], {}
  local events = made and 0 or tonumber(ask('HGET', incoming_meta, 'events') or '0') or 0
  if floor and made then floor = '0-0' -- counted with the stream
  elseif floor then
    count_destroyed(raised, group, tonumber(m[2] or ''), number_before(incoming, id_after(floor), events))
  else
    floor = start == '$' and not made and last_id(incoming) or '0-0'
    local before = made and 0 or number_before(incoming, id_after(floor), events)
    step(steps, 'HSET', meta, 'floor:' .. group, floor, 'floor_to:' .. group, integer_text(before or events))
  end
  step_raised(steps, meta, raised)
  step(steps, 'GROUP', incoming, group, floor)
  step(steps, 'HSETNX', meta, 'policy:' .. group, policy)
end

local function has_group(incoming, group)
  for _, info in ipairs(redis.call('XINFO', 'GROUPS', incoming)) do
    if info[2] == group then return true end
  end
  return false
end

local function open(keys, args)
  local incoming, incoming_meta, meta = keys[1], keys[2], keys[3]
  local changes, version, note = keys[4], keys[5], keys[6]
  local generation, group, policy, start, bus = args[1], args[2], args[3], args[4], args[5]

  check_type(incoming, 'stream')
  finish_noted(note)
  local steps, strings = {}, {}
  local made = redis.call('EXISTS', incoming) == 0
  if not made then repair(incoming, incoming_meta, meta, math.floor(now_us() / 1000)) end
  local known = not made and ask('HGET', incoming_meta, 'generation')
  local missing = group ~= '' and (made or not has_group(incoming, group))
  if made then
    plan_stream(steps, incoming, incoming_meta, meta, generation)
    known = generation
  elseif not known then
    step(steps, 'HSET', incoming_meta, 'generation', generation, 'last', last_id(incoming))
    step(steps, 'HSET', meta, 'generation', generation)
    known = generation
  end
  if bus ~= '' and (made or ask('HGET', incoming_meta, 'bus') ~= bus or ask('HGET', meta, 'bus') ~= bus) then
    step(steps, 'HSET', meta, 'bus', bus)
    step(steps, 'HSET', incoming_meta, 'bus', bus)
  end
  -- A list before the first change needs a version to watch from.
  local text, rv = repaired_version(version, redis.call('MGET', version)[1], changes)
  if text then strings[1], strings[2] = version, text end
  if missing then plan_group(steps, incoming, incoming_meta, meta, group, policy, start, made) end
  if #steps + #strings > 0 then commit(note, strings, nil, steps) end
  written_rv[version] = rv or written_rv[version]
  return { known, made and 1 or 0, missing and 1 or 0 }
end

register('open', naming_corrupt(open, 7), { 'allow-oom' })
