-- What producers can write of the stream, put right again. They call `publish` with their own rights, so they may also
-- write past it: numbers, the generation, names of losses, entries with ids that no clock gives. Known good is what the
-- entries say of each other, and `meta`, where producers do not write; what was put right is counted there.

local AHEAD_MS = 86400000 -- ids further ahead of the clock are nobody's time
local LOOKED_AT = 100 -- entries, from the newest on

-- The fields there are; from COUNTERS on they are counters of which nothing else says what they were.
local KEPT = {
  'generation', 'bus', 'events', 'bytes', 'trimmed', 'last', 'length', 'full', 'losses:dropped', 'losses:refused',
  'losses:unsent', 'losses:uncertain', 'losses:destroyed', 'losses:lost', 'losses:missed', 'losses:other',
}
local COUNTERS = 8

-- The newest entry that goes on where an older one ended; else the newest that has numbers; nil: there is none.
local function newest_of_ours(incoming)
  local ours = {}
  for _, entry in ipairs(ask('XREVRANGE', incoming, '+', '-', 'COUNT', LOOKED_AT)) do
    ours[#ours + 1] = standing(entry)
  end
  for i = 1, #ours do
    for older = i + 1, #ours do
      if follows(ours[i], ours[older].to, ours[older].bytes) then return ours[i] end
    end
  end
  return ours[1]
end

-- An entry with an id of the far future lets no other in, or gives them its time. When every group has finished with all
-- there is, the stream goes back to the clock's time; Redis allows that only to an empty one.
local function mend_ids(incoming, meta, now_ms, mended)
  local last = last_id(incoming)
  if entry_id(last) <= now_ms + AHEAD_MS then return end
  local kept, known = groups_kept(incoming, meta)
  local is_empty = redis.call('XINFO', 'STREAM', incoming)[2] == 0 -- then groups may have gone back in a call that was cut off
  for _, each in ipairs(kept) do
    local behind = not is_empty and each[2] and entry_before(each[2], last)
    if not each[2] or behind or redis.call('XPENDING', incoming, each[1])[1] > 0 then return end
  end
  local id = integer_text(now_ms) .. '-0'
  redis.call('XTRIM', incoming, 'MAXLEN', 0)
  -- The stream itself last: until then a call that was cut off is seen here. A group left ahead would be given nothing.
  for _, each in ipairs(kept) do
    redis.call('XGROUP', 'SETID', incoming, each[1], id)
    if known['floor:' .. each[1]] then redis.call('HSET', meta, 'floor:' .. each[1], id) end
  end
  redis.call('XSETID', incoming, id)
  mended[#mended + 1] = 'ids'
end

-- Events and bytes ever added, and the last entry, as the stream has them; nil: what is there is right.
local function counted_anew(incoming, meta, kept)
  local events, bytes = counter(kept.events or '0'), counter(kept.bytes or '0')
  local last = kept.last and string.find(kept.last, '^%d+%-%d+$') and kept.last
  local noted = last and redis.pcall('XRANGE', incoming, last, last) or {}
  local stands = not noted.err and noted[1] and standing(noted[1])
  if stands then
    if stands.to == events and stands.bytes == bytes then return nil end
  elseif events and bytes and last and not noted.err and not entry_before(last_id(incoming), last) then
    -- It was trimmed, or is somebody else's: then what comes next goes on from here, or nothing of ours does.
    if noted[1] then return nil end
    local newest = newest_of_ours(incoming)
    if not newest then return nil end
    if newest.to == events and newest.bytes == bytes then return events, bytes, newest.id end
    for _, entry in ipairs(entries_behind(incoming, last)) do
      if follows(standing(entry), events, bytes) then return nil end
    end
  end
  local newest = newest_of_ours(incoming)
  if newest then return newest.to, newest.bytes, newest.id end
  local least, known = events or 0, ask('HGETALL', meta)
  for i = 1, #known, 2 do -- all were worked, and each group has noted how many there were
    if not events and string.find(known[i], '^floor_to:') then least = math.max(least, counter(known[i + 1]) or 0) end
  end
  return least, bytes or counter(kept.trimmed or '0') or 0, last_id(incoming)
end

local function mend_numbers(incoming, incoming_meta, meta, mended)
  local kept, right, there = {}, {}, 0
  for i, text in ipairs(ask('HMGET', incoming_meta, unpack(KEPT, 1, #KEPT))) do
    kept[KEPT[i]] = text
    if text then there = there + 1 end
  end
  local function put(field, text)
    if kept[field] == text then return end
    right[#right + 1], right[#right + 2], mended[#mended + 1], kept[field] = field, text, field, text
  end
  local noted = ask('HMGET', meta, 'generation', 'bus')
  local generation = noted[1]
  if generation and kept.generation then put('generation', generation) end
  if noted[2] and kept.bus then put('bus', noted[2]) end
  if not generation and kept.generation then redis.call('HSET', meta, 'generation', kept.generation) end
  local events, bytes, last = counted_anew(incoming, meta, kept)
  if events then
    put('events', integer_text(events))
    put('bytes', integer_text(bytes))
    put('last', last)
    right[#right + 1], right[#right + 2] = 'length', '-1' -- whoever comes next counts what is behind it
  end
  local trimmed = counter(kept.trimmed or '0')
  if not trimmed or trimmed > (counter(kept.bytes or '0') or 0) then
    local first = redis.call('XRANGE', incoming, '-', '+', 'COUNT', 1)[1]
    local stands = first and standing(first)
    put('trimmed', integer_text(stands and stands.at or counter(kept.bytes or '0') or 0))
  end
  for i = COUNTERS, #KEPT do
    if kept[KEPT[i]] and not counter(kept[KEPT[i]]) then put(KEPT[i], '0') end
  end
  if #right > 0 then redis.call('HSET', incoming_meta, unpack(right, 1, #right)) end
  return there
end

-- Names that nobody here knows: they would only grow.
local function mend_names(incoming_meta, there, mended)
  if redis.call('HLEN', incoming_meta) <= there then return end
  local ours, others = {}, {}
  for _, field in ipairs(KEPT) do ours[field] = true end
  for _, field in ipairs(redis.call('HKEYS', incoming_meta)) do
    if not ours[field] then others[#others + 1] = field end
  end
  for low = 1, #others, 1000 do
    redis.call('HDEL', incoming_meta, unpack(others, low, math.min(low + 999, #others)))
  end
  if #others > 0 then mended[#mended + 1] = 'names' end
end

-- The stream is there.
local function mend(incoming, incoming_meta, meta, now_ms)
  local mended = {}
  mend_ids(incoming, meta, now_ms, mended)
  local there = mend_numbers(incoming, incoming_meta, meta, mended)
  mend_names(incoming_meta, there, mended)
  if #mended == 0 then return end
  local times = (counter(ask('HGET', meta, 'mended')) or 0) + 1
  redis.call('HSET', meta, 'mended', integer_text(times), 'mended_last', table.concat(mended, ' '))
end
