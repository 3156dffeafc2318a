-- trim: move the floor of each group up, stop waiting for a group that holds the stream too long, and delete the entries that
-- every group has finished; keep `changes` and `dead` within their bounds. A destroyed group holds the entries above its
-- floor, like a group without workers: it is recreated there.
-- Call    Functions.trim in functions.py
-- KEYS[1] incoming STREAM   KEYS[2] incoming:meta HASH   KEYS[3] meta HASH
-- KEYS[4] changes:<kind> STREAM    KEYS[5] dead STREAM          KEYS[6] workers HASH
-- KEYS[7] version:<kind> STRING    KEYS[8] note:<of> STRING  as of `open`
-- KEYS[9] note:bus:dead STRING  as of `replay`   KEYS[10] spoiled HASH
-- ARGV[1] limit           entries of incoming that a call may remove, approximately
-- ARGV[2] incoming_bytes  ARGV[3] changes_bytes  ARGV[4] dead_bytes   bounds
-- ARGV[5] hold_ms         how long a WAIT group without a live worker holds the stream
-- Reply   {removed, group that lost events or '', how many, 'held' | 'destroyed'}: it held the stream too long, or `open`
--         found events missing; each loss is reported once, one group a call. If a group has
--         many pending entries, a call releases a part: call again.
-- Writes  all keys (of workers only fields that are not numbers); allowed when memory is full, since it only frees.

local function trim_to_bytes(stream, added, bound)
  local id = kept_from(stream, added, bound)
  if id then redis.call('XTRIM', stream, 'MINID', '~', id) end
end

-- Returns the bytes ever added to the dead letter, according to its last entry.
local function dead_bytes_added(dead)
  local last = ask('XREVRANGE', dead, '+', '-', 'COUNT', 1)[1]
  local fields = last and fields_of(last)
  return fields and (tonumber(fields.at or '') or 0) + #(fields.b or '') or 0
end

-- Returns the first entry id that the group still needs.
local function needed_by(incoming, group, delivered)
  local pending = redis.call('XPENDING', incoming, group)
  return pending[1] > 0 and pending[2] or id_after(delivered)
end

-- Returns the heartbeat counters by field. A field that is not a number is removed: its worker could not raise it.
local function read_beats(workers)
  local fields, beats, others = ask('HGETALL', workers), {}, {}
  for i = 1, #fields, 2 do
    beats[fields[i]] = counter(fields[i + 1])
    if not beats[fields[i]] then
      others[#others + 1] = fields[i]
      note_corrupt(workers)
    end
  end
  for low = 1, #others, MANY do
    redis.call('HDEL', workers, unpack(others, low, math.min(low + MANY - 1, #others)))
  end
  return beats
end

-- Returns when a heartbeat counter of the group has changed last: clocks of workers are not compared.
local function last_alive(meta, beats, group, now_ms)
  local sum, start = 0, group .. '/'
  for field, n in pairs(beats) do
    if string.sub(field, 1, #start) == start then sum = sum + n end
  end
  local m = ask('HMGET', meta, 'beats:' .. group, 'alive:' .. group)
  if m[1] ~= integer_text(sum) or not m[2] then
    redis.call('HSET', meta, 'beats:' .. group, integer_text(sum), 'alive:' .. group, integer_text(now_ms))
    return now_ms
  end
  return tonumber(m[2])
end

local MOST_RELEASED = 1000 -- pending entries that one call releases: 3 ms

-- Plans to move the group past *target*, or as far as one call may. Returns the entry that it moves past, nil: there is nothing
-- to do; and the number of events up to there that it never acknowledged. *delivered* false: only its floor moves.
local function plan_release(steps, incoming, meta, group, needed, delivered, target)
  local pending = delivered and redis.call('XPENDING', incoming, group, '-', target, MOST_RELEASED) or {}
  local is_part = #pending == MOST_RELEASED
  if is_part then target = pending[MOST_RELEASED][1] end
  local before = redis.call('XRANGE', incoming, needed, '+', 'COUNT', 1)[1]
  local after = redis.call('XREVRANGE', incoming, target, '-', 'COUNT', 1)[1]
  local lost = 0
  if before and after and not entry_before(after[1], before[1]) then
    local b, a = fields_of(before), fields_of(after)
    lost = (counter(a.to) or 0) - (counter(b.to) or 0) + (counter(b.n) or 0)
  end
  if lost <= 0 and not is_part then return nil, 0 end -- a part without events is released too: the rest has events
  lost = math.max(lost, 0)
  if delivered then
    step(steps, 'RELEASE', incoming, group, target)
    if entry_before(delivered, target) then step(steps, 'XGROUP', 'SETID', incoming, group, target) end
  end
  step_raised(steps, meta, { ['lost:' .. group] = lost })
  step(steps, 'HSET', meta, 'floor:' .. group, target)
  return target, lost
end

-- Returns the last entry that begins before byte *at*, by binary search over the time: ids are times.
local function last_beyond(incoming, from, at)
  local low = entry_id(from)
  local high = math.min(entry_id(redis.call('XINFO', 'STREAM', incoming)[8]), 10 ^ 15)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local entry = redis.call('XRANGE', incoming, integer_text(middle + 1), '+', 'COUNT', 1)[1]
    if entry and (counter(fields_of(entry).at) or 0) < at then low = middle + 1 else high = middle end
  end
  -- Then the entries of that ms are read in turn, since some of them may stay.
  local id, entry = false, redis.call('XRANGE', incoming, integer_text(low), '+', 'COUNT', 1)[1]
  while entry and (counter(fields_of(entry).at) or 0) < at do
    id = entry[1]
    entry = redis.call('XRANGE', incoming, '(' .. id, '+', 'COUNT', 1)[1]
  end
  return id
end

local function trim(keys, args)
  local incoming, incoming_meta, meta, changes, dead, workers = keys[1], keys[2], keys[3], keys[4], keys[5], keys[6]
  local version, note, note_dead = keys[7], keys[8], keys[9]
  local limit, bound = number(args[1], 'limit'), number(args[2], 'incoming_bytes')
  local changes_bound, dead_bound = number(args[3], 'changes_bytes'), number(args[4], 'dead_bytes')
  local hold_ms = number(args[5], 'hold_ms')
  local now_ms = math.floor(now_us() / 1000)

  check_type(incoming, 'stream')
  finish_noted(note)
  finish_noted(note_dead) -- a replay looks for its entry in incoming: it is finished before that is trimmed
  local counted = redis.call('MGET', version)[1]
  if counted or redis.call('EXISTS', version) == 1 then
    local text, rv = repaired_version(version, counted, changes)
    if text then
      commit(note, { version, text }, nil, {})
      written_rv[version], counted = rv, text
    end
  end
  trim_to_bytes(changes, tonumber(select(2, version_parts(counted)) or '0'), changes_bound)
  trim_to_bytes(dead, dead_bytes_added(dead), dead_bound)
  if redis.call('EXISTS', incoming) == 0 then return { 0, '', 0, '' } end
  repair(incoming, incoming_meta, meta, now_ms)
  known_stream(incoming, incoming_meta)

  local counters = ask('HMGET', incoming_meta, 'bytes', 'trimmed', 'events', 'length')
  local added, events = counter(counters[1]) or 0, counter(counters[3]) or 0
  local queued = added - (counter(counters[2]) or 0)
  local kept, known = groups_kept(incoming, meta)
  local beats = read_beats(workers)
  local least, released, lost, cause = nil, '', 0, ''
  for _, each in ipairs(kept) do
    local group, delivered = each[1], each[2]
    local needed = delivered and needed_by(incoming, group, delivered) or id_after(known['floor:' .. group])
    local policy = known['policy:' .. group] or 'WAIT'
    local alive_ms = last_alive(meta, beats, group, now_ms)
    local unreported = tonumber(known['untold:' .. group] or '0')
    if released == '' and unreported > 0 then
      released, lost, cause = group, unreported, 'destroyed'
      redis.call('HSET', meta, 'untold:' .. group, '0')
    elseif released == '' then
      local target
      if policy == 'DROP' and queued > bound / 2 then
        target = last_beyond(incoming, needed, added - bound / 2)
      elseif policy == 'WAIT' and now_ms - alive_ms > hold_ms then
        target = redis.call('XINFO', 'STREAM', incoming)[8]
      end
      if target then
        local steps, past = {}, nil
        past, lost = plan_release(steps, incoming, meta, group, needed, delivered, target)
        if past then
          commit(note, {}, nil, steps)
          released, cause, needed = group, 'held', id_after(past)
        end
      end
    end
    redis.call('HSET', meta, 'floor:' .. group, id_before(needed))
    local number = number_before(incoming, needed, events)
    if number then redis.call('HSET', meta, 'floor_to:' .. group, integer_text(number)) end
    if not least or entry_before(needed, least) then least = needed end
  end
  if not least then return { 0, released, lost, cause } end

  -- With '~' whole nodes go, cheaply; a short stream is cut to the entry.
  local removed = redis.call('XTRIM', incoming, 'MINID', '~', least, 'LIMIT', limit)
  local length = redis.call('XLEN', incoming)
  if length <= 200 then
    local few = redis.call('XTRIM', incoming, 'MINID', least)
    removed, length = removed + few, length - few
  end
  -- Checked each time: this also repairs the result of an interrupted call.
  local first = redis.call('XRANGE', incoming, '-', '+', 'COUNT', 1)[1]
  local trimmed = counters[1]
  if first then
    local at = counter(fields_of(first).at) -- a foreign entry has none
    trimmed = at and at <= added and integer_text(at) or counters[2]
  end
  if trimmed and (trimmed ~= counters[2] or integer_text(length) ~= counters[4]) then
    redis.call('HSET', incoming_meta, 'trimmed', trimmed, 'length', integer_text(length))
  end
  return { removed, released, lost, cause }
end

register('trim', naming_corrupt(trim, 10), { 'allow-oom' })
