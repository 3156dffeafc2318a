-- The stream of events itself. A call that was cut off behind its XADD is finished by the next one: in incoming:meta,
-- *last* is the last entry that everything was written for, and *length* the number of entries then. Only an entry that
-- begins where the one before it ended counts: a publisher may also append entries of its own.

-- Why producers lose events; see docs/reliability.md. `other` is what they give another name.
local CAUSES = {
  dropped = true, refused = true, unsent = true, uncertain = true, destroyed = true, lost = true, missed = true,
  other = true,
}

-- Adds to *told* the field of a cause, and what it comes to with *lost* more.
local function add_losses(told, incoming_meta, cause, lost)
  local field = 'losses:' .. cause
  told[#told + 1] = field
  told[#told + 1] = integer_text(math.min(MOST, (counter(ask('HGET', incoming_meta, field)) or 0) + lost))
end

-- Returns where an entry says that it stands: its events, the running number of the last, the bytes before it and with
-- it; nil: it is somebody else's.
local function standing(entry)
  local fields = fields_of(entry)
  local n, to, at = counter(fields.n), counter(fields.to), counter(fields.at)
  if not (n and to and at and fields.b) or n > 64 or n > to then return nil end
  return { id = entry[1], n = n, to = to, at = at, bytes = at + #fields.b, losses = fields.l or '' }
end

local function follows(stands, events, bytes)
  return stands ~= nil and stands.to - stands.n == events and stands.at == bytes
end

-- Finishes the entries behind *last*: writes all that their calls would have written. A caller that may not read the
-- stream leaves this to those who may. Returns whether it is done.
local function settle(incoming, incoming_meta, known)
  local late = entries_behind(incoming, known.last)
  if late.err then return false end
  while #late > 0 do
    local raised, told = {}, {}
    for _, entry in ipairs(late) do
      local stands = standing(entry)
      if follows(stands, known.events, known.bytes) then
        known.events, known.bytes = stands.to, stands.bytes
        for cause, lost in string.gmatch(stands.losses, '(%S+) (%d+)') do
          if CAUSES[cause] then raised[cause] = (raised[cause] or 0) + (counter(lost) or 0) end
        end
      end
      known.last = entry[1]
    end
    for cause, lost in pairs(raised) do add_losses(told, incoming_meta, cause, lost) end
    redis.call('HSET', incoming_meta, 'events', integer_text(known.events), 'bytes', integer_text(known.bytes),
      'last', known.last, 'length', integer_text(known.length), unpack(told))
    late = entries_behind(incoming, known.last)
  end
  return true
end

-- Reads what is known of the stream: generation, events and bytes ever added, bytes trimmed, the last entry, the number of
-- entries. nil: the stream, or this knowledge of it, is gone or spoiled, and `open` puts it right. A different length
-- shows an entry that is not noted yet.
local function known_stream(incoming, incoming_meta)
  local m = ask('HMGET', incoming_meta, 'generation', 'events', 'bytes', 'trimmed', 'last', 'length', 'bus')
  if not m[1] then return nil end
  local known = {
    generation = m[1], events = counter(m[2] or '0'), bytes = counter(m[3] or '0'), trimmed = counter(m[4] or '0'),
    last = m[5] or '0-0', length = ask('XLEN', incoming), bus = m[7],
  }
  if not (known.events and known.bytes and known.trimmed) then return nil end
  if m[6] == integer_text(known.length) then return known end
  if not settle(incoming, incoming_meta, known) then return nil end
  return known
end

-- Appends the content of a dead entry, for the one group that buried it. If that was done before, it stands behind
-- *since*: nothing of the stream is trimmed while there is a note.
local function append_replayed(command, finishing)
  local _, incoming, incoming_meta, dead_id, group, body, since = unpack(command)
  local known = known_stream(incoming, incoming_meta)
  if not known then error({ err = 'ERR eventbus: ' .. incoming .. ' is gone: open the bus' }) end
  local from = finishing and since
  while from do
    local found = redis.call('XRANGE', incoming, from, '+', 'COUNT', 100)
    for _, entry in ipairs(found) do
      if fields_of(entry).r == dead_id then return end
    end
    from = #found > 0 and '(' .. found[#found][1]
  end
  local id = redis.call('XADD', incoming, 'NOMKSTREAM', '*', 'n', '0', 'to', integer_text(known.events),
    'at', integer_text(known.bytes), 'b', body, 'g', group, 'r', dead_id)
  redis.call('HSET', incoming_meta, 'bytes', integer_text(known.bytes + #body), 'last', id,
    'length', integer_text(known.length + 1))
end
