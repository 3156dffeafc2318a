-- open: make what a partition stands on, or find it made.
-- KEYS[1] eb:{p}:incoming  STREAM    KEYS[2] eb:{p}:incoming:meta  HASH    KEYS[3] eb:{p}:meta  HASH
-- KEYS[4] eb:{p}:changes  STREAM (read: its last id)
-- ARGV[1] generation   random, 16 hex; taken only if the stream has none
-- ARGV[2] group        to make as well, '' for none       ARGV[3] policy  WAIT | DROP
-- ARGV[4] start        '0' the oldest entry, '$' from now on; an existing group or floor wins
-- Reply   {generation, 1 if the stream was made, 1 if the group was made}
-- Writes  KEYS 1-3; allowed when memory is full, since workers that start then are those that drain it.
--         A group that is gone while its floor is remembered is made anew at its floor. What is missing from there
--         on, be it that the whole stream was destroyed, is counted: lost:<group>; `trim` tells it: untold:<group>.
--         Floors are up to a second old, so up to a second of what the group had done may be counted with it.

local function count_destroyed(meta, group, from, to)
  local lost = from and to and to - from or 0
  if lost <= 0 then return end
  redis.call('HINCRBY', meta, 'lost:' .. group, lost)
  redis.call('HINCRBY', meta, 'untold:' .. group, lost)
end

local function make_stream(incoming, incoming_meta, meta, generation)
  local events = tonumber(redis.call('HGET', incoming_meta, 'events') or '0')
  -- A stream is made by a group and that group destroyed: XADD would leave an entry behind.
  redis.call('XGROUP', 'CREATE', incoming, '\1', '0', 'MKSTREAM')
  redis.call('XGROUP', 'DESTROY', incoming, '\1')
  redis.call('DEL', incoming_meta)
  redis.call('HSET', incoming_meta, 'generation', generation, 'events', 0, 'bytes', 0)
  local kept, known = groups_kept(incoming, meta)
  for _, each in ipairs(kept) do
    count_destroyed(meta, each[1], tonumber(known['floor_to:' .. each[1]] or ''), events)
    redis.call('HSET', meta, 'floor:' .. each[1], '0-0', 'floor_to:' .. each[1], '0')
  end
end

local function make_group(incoming, incoming_meta, meta, group, policy, start)
  local m = redis.call('HMGET', meta, 'floor:' .. group, 'floor_to:' .. group)
  local floor, events = m[1], tonumber(redis.call('HGET', incoming_meta, 'events') or '0')
  if floor then
    count_destroyed(meta, group, tonumber(m[2] or ''), number_before(incoming, id_after(floor), events))
  else
    floor = start == '$' and redis.call('XINFO', 'STREAM', incoming)[8] or '0-0'
    local number = number_before(incoming, id_after(floor), events)
    redis.call('HSET', meta, 'floor:' .. group, floor, 'floor_to:' .. group, integer_text(number or events))
  end
  redis.call('XGROUP', 'CREATE', incoming, group, floor)
  redis.call('HSETNX', meta, 'policy:' .. group, policy)
end

local function open(keys, args)
  local incoming, incoming_meta, meta, changes = keys[1], keys[2], keys[3], keys[4]
  local generation, group, policy, start = args[1], args[2], args[3], args[4]

  check_type(incoming_meta, 'hash')
  check_type(meta, 'hash')
  local made = redis.call('EXISTS', incoming) == 0
  local known = redis.call('HGET', incoming_meta, 'generation')
  local has_group = false
  if not made and group ~= '' then
    for _, info in ipairs(redis.call('XINFO', 'GROUPS', incoming)) do
      if info[2] == group then has_group = true end
    end
  end

  if made then
    make_stream(incoming, incoming_meta, meta, generation)
    known = generation
  elseif not known then
    redis.call('HSET', incoming_meta, 'generation', generation)
    known = generation
  end
  -- A list before the first change needs a version to watch from.
  if redis.call('HEXISTS', meta, 'rv') == 0 then
    keep_version(meta, last_version(meta, changes, now_us()))
  end
  if group ~= '' and not has_group then make_group(incoming, incoming_meta, meta, group, policy, start) end
  return { known, made and 1 or 0, (group ~= '' and not has_group) and 1 or 0 }
end

redis.register_function{ function_name = 'eb1_open', callback = open, flags = { 'allow-oom' } }
