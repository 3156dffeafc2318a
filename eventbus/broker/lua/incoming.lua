-- The stream of events. If a call is interrupted after its XADD, the next call completes it: in incoming:meta, *last* is the
-- last entry for which everything was written, and *length* the number of entries at that time. An entry counts only if it
-- begins where the entry before it ended, because a publisher can also append other entries.

-- The causes of losses at producers; see docs/reliability.md. Every other cause counts as `other`.
local CAUSES = {
  dropped = true, refused = true, unsent = true, uncertain = true, destroyed = true, lost = true, missed = true,
  other = true,
}

-- Appends the field of a cause to *pairs_of*, and its value with *lost* more.
local function add_losses(pairs_of, incoming_meta, cause, lost)
  local field = 'losses:' .. cause
  pairs_of[#pairs_of + 1] = field
  pairs_of[#pairs_of + 1] = integer_text(math.min(MOST, (counter(ask('HGET', incoming_meta, field)) or 0) + lost))
end

-- Returns the position that an entry states: its events, the running number of the last one, the bytes before it and up to
-- its end; nil: it is a foreign entry.
local function position_of(entry)
  local fields = fields_of(entry)
  local n, to, at = counter(fields.n), counter(fields.to), counter(fields.at)
  if not (n and to and at and fields.b) or n > 64 or n > to then return nil end
  return { id = entry[1], n = n, to = to, at = at, bytes = at + #fields.b, losses = fields.l or '' }
end

local function follows(position, events, bytes)
  return position ~= nil and position.to - position.n == events and position.at == bytes
end

-- Completes the entries after *last*: writes all data that their calls would have written. Returns whether it is done: a
-- caller that may not read the stream leaves it to other calls.
local function count_late_entries(incoming, incoming_meta, known)
  local late = entries_after(incoming, known.last)
  if late.err then return false end
  while #late > 0 do
    local raised, losses = {}, {}
    for _, entry in ipairs(late) do
      local position = position_of(entry)
      if follows(position, known.events, known.bytes) then
        known.events, known.bytes = position.to, position.bytes
        for cause, lost in string.gmatch(position.losses, '(%S+) (%d+)') do
          if CAUSES[cause] then raised[cause] = (raised[cause] or 0) + (counter(lost) or 0) end
        end
      end
      known.last = entry[1]
    end
    for cause, lost in pairs(raised) do add_losses(losses, incoming_meta, cause, lost) end
    redis.call('HSET', incoming_meta, 'events', integer_text(known.events), 'bytes', integer_text(known.bytes),
      'last', known.last, 'length', integer_text(known.length), unpack(losses))
    late = entries_after(incoming, known.last)
  end
  return true
end

-- Returns the state of the stream: generation, events and bytes ever added, bytes trimmed, the last entry, the number of
-- entries. nil: the stream or its state is missing or corrupt, and `open` repairs it. A different length shows an entry that
-- is not counted yet.
local function known_stream(incoming, incoming_meta)
  local m = ask('HMGET', incoming_meta, 'generation', 'events', 'bytes', 'trimmed', 'last', 'length', 'bus')
  if not m[1] then return nil end
  local known = {
    generation = m[1], events = counter(m[2] or '0'), bytes = counter(m[3] or '0'), trimmed = counter(m[4] or '0'),
    last = m[5] or '0-0', length = ask('XLEN', incoming), bus = m[7],
  }
  if not (known.events and known.bytes and known.trimmed) then return nil end
  if m[6] == integer_text(known.length) then return known end
  if not count_late_entries(incoming, incoming_meta, known) then return nil end
  return known
end

local MOST_BODY = 131072 -- bytes of a batch, as in wire.py
local MOST_LIFE_MS = 2678400000 -- 31 days, of the state of a producer

local function check_body(body)
  if #body > MOST_BODY then error({ err = 'ERR eventbus: body is longer than ' .. MOST_BODY .. ' bytes' }) end
end

local function is_full(known, body, bound)
  return known.bytes - known.trimmed + #body > bound
end

local function holder(incoming, meta)
  local name, least = '', nil
  local kept, known = groups_kept(incoming, meta)
  for _, each in ipairs(kept) do
    local floor = known['floor:' .. each[1]] or '0-0'
    if not least or entry_before(floor, least) then name, least = each[1], floor end
  end
  return name
end

-- Counts a batch of *n* events that finds no room. Returns the reply with the group that holds the stream.
local function refuse_full(incoming, incoming_meta, meta, n)
  if redis.call('EXISTS', incoming) == 0 then return { 'MISSING' } end
  local held_by = holder(incoming, meta)
  local counted = redis.pcall('HINCRBY', incoming_meta, 'full', n)
  -- `repair` replaces a value that is not a number.
  if type(counted) == 'table' and not string.find(counted.err, 'not an integer', 1, true) then error(counted) end
  return { 'FULL', held_by }
end

-- Appends a batch, also to *known*; *lost*: the field with losses, or none. Returns its id; false: there is no stream;
-- a table: an error.
local function append_batch(incoming, known, n, body, lost)
  local to = known.events + n
  local id = redis.pcall('XADD', incoming, 'NOMKSTREAM', '*', 'n', integer_text(n), 'to', integer_text(to),
    'at', integer_text(known.bytes), 'b', body, unpack(lost))
  if type(id) == 'string' then
    known.events, known.bytes, known.last, known.length = to, known.bytes + #body, id, known.length + 1
  end
  return id
end

-- Writes the numbers of the stream after `append_batch`; *losses*: further fields and values.
local function count_batches(incoming_meta, known, losses)
  redis.call('HSET', incoming_meta, 'events', integer_text(known.events), 'bytes', integer_text(known.bytes),
    'last', known.last, 'length', integer_text(known.length), unpack(losses))
end

-- Appends the content of a dead letter, for the one group that buried it. If an interrupted call did this already, the entry
-- is after *since*: the stream is not trimmed while there is a note.
local function append_replayed(command, finishing)
  local _, incoming, incoming_meta, dead_id, group, body, since = unpack(command)
  local known = known_stream(incoming, incoming_meta)
  if not known then error({ err = 'ERR eventbus: ' .. incoming .. ' is gone: open the bus' }) end
  local from = finishing and since
  while from do
    local entries = redis.call('XRANGE', incoming, from, '+', 'COUNT', 100)
    for _, entry in ipairs(entries) do
      if fields_of(entry).r == dead_id then return end
    end
    from = #entries > 0 and '(' .. entries[#entries][1]
  end
  local id = redis.call('XADD', incoming, 'NOMKSTREAM', '*', 'n', '0', 'to', integer_text(known.events),
    'at', integer_text(known.bytes), 'b', body, 'g', group, 'r', dead_id)
  redis.call('HSET', incoming_meta, 'bytes', integer_text(known.bytes + #body), 'last', id,
    'length', integer_text(known.length + 1))
end
