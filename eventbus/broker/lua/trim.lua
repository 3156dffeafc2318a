-- trim: move each group's floor up, let go of a group that holds the stream too long, and forget the entries
-- that every group has finished with; keep `changes` and `dead` within their bounds. A group that was destroyed
-- holds what is above its floor as a dead one does: it is made anew there.
-- KEYS[1] incoming STREAM   KEYS[2] incoming:meta HASH   KEYS[3] meta HASH
-- KEYS[4] changes STREAM    KEYS[5] dead STREAM          KEYS[6] workers HASH
-- ARGV[1] limit           entries of incoming a call may remove, about
-- ARGV[2] incoming_bytes  ARGV[3] changes_bytes  ARGV[4] dead_bytes   bounds
-- ARGV[5] hold_ms         how long a WAIT group without a live worker holds the stream
-- Reply   {removed, group that lost events or '', how many, 'held' | 'destroyed'}: it held the stream too long, or
--         `open` found some gone (field untold:<group>); each loss is told once, one group a call
-- Writes  KEYS 1-5; allowed when memory is full, since it only frees.

local function trim_to_bytes(stream, added, bound)
  local first = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
  if not first then return end
  local queued = added - tonumber(fields_of(first).at or '0')
  if queued <= bound then return end
  local length = redis.call('XLEN', stream)
  redis.call('XTRIM', stream, 'MAXLEN', '~', math.max(1, math.floor(length * bound / queued)))
end

-- The first entry id that the group still needs.
local function needed_by(incoming, group, delivered)
  local pending = redis.call('XPENDING', incoming, group)
  return pending[1] > 0 and pending[2] or id_after(delivered)
end

-- Whether any worker of the group has beaten lately. Counters, not clocks: only their movement is looked at.
local function last_alive(meta, workers, group, now_ms)
  local sum, start = 0, group .. '/'
  local beats = redis.call('HGETALL', workers)
  for i = 1, #beats, 2 do
    if string.sub(beats[i], 1, #start) == start then sum = sum + tonumber(beats[i + 1]) end
  end
  local m = redis.call('HMGET', meta, 'beats:' .. group, 'alive:' .. group)
  if m[1] ~= integer_text(sum) or not m[2] then
    redis.call('HSET', meta, 'beats:' .. group, integer_text(sum), 'alive:' .. group, integer_text(now_ms))
    return now_ms
  end
  return tonumber(m[2])
end

-- Move the group past *target* and count what it never acknowledged. *delivered* false: it is its floor that moves.
local function release(incoming, meta, group, needed, delivered, target)
  local before = redis.call('XRANGE', incoming, needed, '+', 'COUNT', 1)[1]
  local after = redis.call('XREVRANGE', incoming, target, '-', 'COUNT', 1)[1]
  if not before or not after or entry_before(after[1], before[1]) then return 0 end
  local b, a = fields_of(before), fields_of(after)
  local lost = tonumber(a.to or '0') - tonumber(b.to or '0') + tonumber(b.n or '0')
  while delivered do
    local pending = redis.call('XPENDING', incoming, group, '-', target, 1000)
    if #pending == 0 then break end
    local ids = {}
    for i, p in ipairs(pending) do ids[i] = p[1] end
    redis.call('XACK', incoming, group, unpack(ids))
  end
  if delivered and entry_before(delivered, target) then redis.call('XGROUP', 'SETID', incoming, group, target) end
  redis.call('HINCRBY', meta, 'lost:' .. group, lost)
  return lost
end

-- The last entry that begins before byte *at*, looked for by halving the time between: ids are times.
local function last_beyond(incoming, from, at)
  local low = entry_id(from)
  local high = entry_id(redis.call('XINFO', 'STREAM', incoming)[8])
  while low < high do
    local middle = math.floor((low + high) / 2)
    local entry = redis.call('XRANGE', incoming, integer_text(middle + 1), '+', 'COUNT', 1)[1]
    if entry and tonumber(fields_of(entry).at or '0') < at then low = middle + 1 else high = middle end
  end
  -- Then the entries of that ms are walked, since a ms may hold some that can stay.
  local found, entry = false, redis.call('XRANGE', incoming, integer_text(low), '+', 'COUNT', 1)[1]
  while entry and tonumber(fields_of(entry).at or '0') < at do
    found = entry[1]
    entry = redis.call('XRANGE', incoming, '(' .. found, '+', 'COUNT', 1)[1]
  end
  return found
end

local function trim(keys, args)
  local incoming, incoming_meta, meta, changes, dead, workers = keys[1], keys[2], keys[3], keys[4], keys[5], keys[6]
  local limit, bound = number(args[1], 'limit'), number(args[2], 'incoming_bytes')
  local changes_bound, dead_bound = number(args[3], 'changes_bytes'), number(args[4], 'dead_bytes')
  local hold_ms = number(args[5], 'hold_ms')
  local now_ms = math.floor(now_us() / 1000)

  local m = redis.call('HMGET', meta, 'changes_bytes', 'dead_bytes')
  trim_to_bytes(changes, tonumber(m[1] or '0'), changes_bound)
  trim_to_bytes(dead, tonumber(m[2] or '0'), dead_bound)
  if redis.call('EXISTS', incoming) == 0 then return { 0, '', 0, '' } end

  local counters = redis.call('HMGET', incoming_meta, 'bytes', 'trimmed', 'events')
  local queued, events = tonumber(counters[1] or '0') - tonumber(counters[2] or '0'), tonumber(counters[3] or '0')
  local kept, known = groups_kept(incoming, meta)
  local least, released, lost, cause = nil, '', 0, ''
  for _, each in ipairs(kept) do
    local group, delivered = each[1], each[2]
    local needed = delivered and needed_by(incoming, group, delivered) or id_after(known['floor:' .. group])
    local policy = known['policy:' .. group] or 'WAIT'
    local alive_ms = last_alive(meta, workers, group, now_ms)
    local untold = tonumber(known['untold:' .. group] or '0')
    if released == '' and untold > 0 then
      released, lost, cause = group, untold, 'destroyed'
      redis.call('HSET', meta, 'untold:' .. group, '0')
    elseif released == '' then
      local target
      if policy == 'DROP' and queued > bound / 2 then
        target = last_beyond(incoming, needed, tonumber(counters[1]) - bound / 2)
      elseif policy == 'WAIT' and now_ms - alive_ms > hold_ms then
        target = redis.call('XINFO', 'STREAM', incoming)[8]
      end
      if target then
        lost = release(incoming, meta, group, needed, delivered, target)
        if lost > 0 then released, cause, needed = group, 'held', id_after(target) end
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
  if redis.call('XLEN', incoming) <= 200 then removed = removed + redis.call('XTRIM', incoming, 'MINID', least) end
  if removed > 0 then
    local first = redis.call('XRANGE', incoming, '-', '+', 'COUNT', 1)[1]
    redis.call('HSET', incoming_meta, 'trimmed', first and fields_of(first).at or counters[1])
  end
  return { removed, released, lost, cause }
end

redis.register_function{ function_name = 'eb1_trim', callback = trim, flags = { 'allow-oom' } }
