-- Repairs the data of the stream that producers can write. They call `publish` with their own rights, so they can also write
-- without it: numbers, the generation, names of losses, entries with ids that no clock gives. The entries are compared with
-- each other, and with `meta`, which producers cannot write. Repairs are counted there.
-- Exports: repair

local AHEAD_MS = 86400000 -- ids further ahead of the clock do not come from a clock
local COMPARED = 100 -- entries, from the newest on

-- The known fields. From COUNTERS on they are counters that cannot be compared with anything.
local FIELDS = {
  'generation', 'bus', 'events', 'bytes', 'trimmed', 'last', 'length', 'full', 'losses:dropped', 'losses:refused',
  'losses:unsent', 'losses:uncertain', 'losses:destroyed', 'losses:lost', 'losses:missed', 'losses:other',
}
local COUNTERS = 8

-- Returns the newest entry that begins where an older one ended; else the newest with numbers; nil: there is none.
local function newest_valid(incoming)
  local valid = {}
  for _, entry in ipairs(ask('XREVRANGE', incoming, '+', '-', 'COUNT', COMPARED)) do
    valid[#valid + 1] = position_of(entry)
  end
  for i = 1, #valid do
    for older = i + 1, #valid do
      if follows(valid[i], valid[older].to, valid[older].bytes) then return valid[i] end
    end
  end
  return valid[1]
end

-- After an entry with an id of the far future, no entry can follow, or all get its time. When every group has finished all
-- entries, the stream gets the time of the clock again; Redis allows this only for an empty stream.
local function repair_ids(incoming, meta, now_ms, repaired)
  local last = last_id(incoming)
  if entry_id(last) <= now_ms + AHEAD_MS then return end
  local kept, known = groups_kept(incoming, meta)
  -- If the stream is empty, an interrupted call may have moved some groups back already.
  local is_empty = redis.call('XINFO', 'STREAM', incoming)[2] == 0
  for _, each in ipairs(kept) do
    local has_unread = not is_empty and each[2] and entry_before(each[2], last)
    if not each[2] or has_unread or redis.call('XPENDING', incoming, each[1])[1] > 0 then return end
  end
  local id = integer_text(now_ms) .. '-0'
  redis.call('XTRIM', incoming, 'MAXLEN', 0)
  -- The stream is last, so that an interrupted call is recognized here. A group left ahead would receive no entries.
  for _, each in ipairs(kept) do
    redis.call('XGROUP', 'SETID', incoming, each[1], id)
    if known['floor:' .. each[1]] then redis.call('HSET', meta, 'floor:' .. each[1], id) end
  end
  redis.call('XSETID', incoming, id)
  repaired[#repaired + 1] = 'ids'
end

-- Returns events and bytes ever added, and the last entry, according to the stream; nil: the stored ones are right.
local function recount(incoming, meta, stored)
  local events, bytes = counter(stored.events or '0'), counter(stored.bytes or '0')
  local last = stored.last and string.find(stored.last, '^%d+%-%d+$') and stored.last
  local at_last = last and redis.pcall('XRANGE', incoming, last, last) or {}
  local position = not at_last.err and at_last[1] and position_of(at_last[1])
  if position then
    if position.to == events and position.bytes == bytes then return nil end
  elseif events and bytes and last and not at_last.err and not entry_before(last_id(incoming), last) then
    -- It was trimmed, or is foreign. The stored numbers are right if an entry continues them, or if no valid entry exists.
    if at_last[1] then return nil end
    local newest = newest_valid(incoming)
    if not newest then return nil end
    if newest.to == events and newest.bytes == bytes then return events, bytes, newest.id end
    for _, entry in ipairs(entries_after(incoming, last)) do
      if follows(position_of(entry), events, bytes) then return nil end
    end
  end
  local newest = newest_valid(incoming)
  if newest then return newest.to, newest.bytes, newest.id end
  local least, known = events or 0, ask('HGETALL', meta)
  for i = 1, #known, 2 do -- all entries were handled, and each group has noted the number of its last one
    if not events and string.find(known[i], '^floor_to:') then least = math.max(least, counter(known[i + 1]) or 0) end
  end
  return least, bytes or counter(stored.trimmed or '0') or 0, last_id(incoming)
end

-- Returns the number of known fields that exist.
local function untrusted_numbers(incoming, incoming_meta, meta, repaired)
  local stored, changed, existing = {}, {}, 0
  for i, text in ipairs(ask('HMGET', incoming_meta, unpack(FIELDS, 1, #FIELDS))) do
    stored[FIELDS[i]] = text
    if text then existing = existing + 1 end
  end
  local function put(field, text)
    if stored[field] == text then return end
    changed[#changed + 1], changed[#changed + 2], repaired[#repaired + 1], stored[field] = field, text, field, text
  end
  local of_meta = ask('HMGET', meta, 'generation', 'bus')
  local generation = of_meta[1]
  if generation and stored.generation then put('generation', generation) end
  if of_meta[2] and stored.bus then put('bus', of_meta[2]) end
  if not generation and stored.generation then redis.call('HSET', meta, 'generation', stored.generation) end
  local events, bytes, last = recount(incoming, meta, stored)
  if events then
    put('events', integer_text(events))
    put('bytes', integer_text(bytes))
    put('last', last)
    changed[#changed + 1], changed[#changed + 2] = 'length', '-1' -- the next call counts the entries after `last`
  end
  local trimmed = counter(stored.trimmed or '0')
  if not trimmed or trimmed > (counter(stored.bytes or '0') or 0) then
    local first = redis.call('XRANGE', incoming, '-', '+', 'COUNT', 1)[1]
    local position = first and position_of(first)
    put('trimmed', integer_text(position and position.at or counter(stored.bytes or '0') or 0))
  end
  for i = COUNTERS, #FIELDS do
    if stored[FIELDS[i]] and not counter(stored[FIELDS[i]]) then put(FIELDS[i], '0') end
  end
  if #changed > 0 then redis.call('HSET', incoming_meta, unpack(changed, 1, #changed)) end
  return existing
end

-- Deletes unknown fields: their number has no bound.
local function repair_names(incoming_meta, existing, repaired)
  if redis.call('HLEN', incoming_meta) <= existing then return end
  local known, others = {}, {}
  for _, field in ipairs(FIELDS) do known[field] = true end
  for _, field in ipairs(redis.call('HKEYS', incoming_meta)) do
    if not known[field] then others[#others + 1] = field end
  end
  for low = 1, #others, MANY do
    redis.call('HDEL', incoming_meta, unpack(others, low, math.min(low + MANY - 1, #others)))
  end
  if #others > 0 then repaired[#repaired + 1] = 'names' end
end

-- The stream must exist.
function repair(incoming, incoming_meta, meta, now_ms)
  local repaired = {}
  repair_ids(incoming, meta, now_ms, repaired)
  local existing = untrusted_numbers(incoming, incoming_meta, meta, repaired)
  repair_names(incoming_meta, existing, repaired)
  if #repaired == 0 then return end
  local times = (counter(ask('HGET', meta, 'mended')) or 0) + 1
  redis.call('HSET', meta, 'mended', integer_text(times), 'mended_last', table.concat(repaired, ' '))
end
