-- The stream of events itself. A call that was cut off behind its XADD is finished by the next one: in incoming:meta,
-- *last* is the last entry that everything was written for, and *length* the number of entries then.

local PRODUCER_LIFE_MS = '7200000' -- where a call does not say

-- Returns producer and sequence of a batch's first event, from the head of its bytes; nil: it is no batch of ours.
local function read_head(body)
  local length = string.byte(body, 3)
  if not length or length < 0xa1 or length > 0xbf then return nil end
  local at = 4 + length - 0xa0
  local ok, _, first = pcall(cmsgpack.unpack_one, body, at - 1)
  if not ok or type(first) ~= 'number' then return nil end
  return string.sub(body, 4, at - 1), first
end

-- Finishes the entries behind *last*: writes all that their calls would have written, also about producers. A caller that
-- may not read the stream leaves this to those who may. Returns whether it is done.
local function settle(incoming, incoming_meta, producer_prefix, life_ms, known)
  local late = redis.pcall('XRANGE', incoming, '(' .. known.last, '+', 'COUNT', 100)
  if late.err then return false end
  while #late > 0 do
    local raised = {}
    for _, entry in ipairs(late) do
      local fields = fields_of(entry)
      local n, to, body = tonumber(fields.n or ''), tonumber(fields.to or ''), fields.b or ''
      if n and to then
        known.events, known.bytes = to, (tonumber(fields.at or '') or 0) + #body
        for cause, lost in string.gmatch(fields.l or '', '(%S+) (%d+)') do
          raised['losses:' .. cause] = (raised['losses:' .. cause] or 0) + tonumber(lost)
        end
        local producer, first = read_head(body)
        if producer and n > 0 and not fields.x then
          local key = producer_prefix .. producer
          redis.call('HSET', key, 'last', integer_text(first + n - 1), 'generation', known.generation)
          redis.call('PEXPIRE', key, life_ms)
        end
      end
      known.last = entry[1]
    end
    local told = {}
    for field, lost in pairs(raised) do
      told[#told + 1] = field
      told[#told + 1] = integer_text((tonumber(ask('HGET', incoming_meta, field) or '0') or 0) + lost)
    end
    redis.call('HSET', incoming_meta, 'events', integer_text(known.events), 'bytes', integer_text(known.bytes),
      'last', known.last, 'length', integer_text(known.length), unpack(told))
    late = redis.call('XRANGE', incoming, '(' .. known.last, '+', 'COUNT', 100)
  end
  return true
end

-- Reads what is known of the stream: generation, events and bytes ever added, bytes trimmed, the last entry, the number of
-- entries. nil: the stream, or this knowledge of it, is gone. A different length shows an entry that is not noted yet.
local function known_stream(incoming, incoming_meta, producer_prefix, life_ms)
  local m = ask('HMGET', incoming_meta, 'generation', 'events', 'bytes', 'trimmed', 'last', 'length', 'bus')
  if not m[1] then return nil end
  local known = {
    generation = m[1], events = tonumber(m[2] or '0') or 0, bytes = tonumber(m[3] or '0') or 0,
    trimmed = tonumber(m[4] or '0') or 0, last = m[5] or '0-0', length = ask('XLEN', incoming), bus = m[7],
  }
  if m[6] == integer_text(known.length) then return known end
  if not settle(incoming, incoming_meta, producer_prefix, life_ms, known) then return nil end
  return known
end

-- Appends the content of a dead entry, for the one group that buried it. If that was done before, it stands behind
-- *since*: nothing of the stream is trimmed while there is a note.
local function append_replayed(command, finishing)
  local _, incoming, incoming_meta, producer_prefix, dead_id, group, body, since = unpack(command)
  local known = known_stream(incoming, incoming_meta, producer_prefix, PRODUCER_LIFE_MS)
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
