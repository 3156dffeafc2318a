-- Shared by every function of the library: no keys, no verbs. Redis undoes nothing, so each function
-- checks everything, reads everything, and then writes.

local BUILD = 14

-- What the library remembers between calls of one server process: meta key -> rv it wrote last. It is empty
-- after a restart, a promotion or FUNCTION LOAD, and that is the point: see `last_version`.
local written_rv = {}

local memory = { checked_ms = 0, full = false }

local function number(text, name)
  local n = tonumber(text)
  if not n then error({ err = 'ERR eventbus: ' .. name .. ' is not a number' }) end
  return n
end

-- Text of a whole number below 2^53. Given a number, Redis itself writes %.17g, which costs ten times as much.
local function integer_text(n)
  return string.format('%d', n)
end

-- A key of another type would end a function in the middle of writing, and what was acknowledged would be lost.
local function check_type(key, wanted)
  local found = redis.call('TYPE', key).ok
  if found ~= wanted and found ~= 'none' then
    error({ err = 'WRONGTYPE eventbus: ' .. key .. ' is a ' .. found .. ', not a ' .. wanted })
  end
end

local function now_us()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000000 + tonumber(t[2])
end

-- INFO costs tens of microseconds, so the answer is kept for 100 ms.
local function memory_full(now_ms)
  if now_ms - memory.checked_ms >= 100 or now_ms < memory.checked_ms then
    local info = redis.call('INFO', 'memory')
    local used = tonumber(string.match(info, 'used_memory:(%d+)'))
    local most = tonumber(string.match(info, 'maxmemory:(%d+)'))
    memory.full = most ~= nil and most > 0 and used ~= nil and used > most
    memory.checked_ms = now_ms
  end
  return memory.full
end

-- 'ms-seq' as two numbers
local function entry_id(text)
  local ms, seq = string.match(text, '^(%d+)-(%d+)$')
  if not ms then error({ err = 'ERR eventbus: not an entry id' }) end
  return tonumber(ms), tonumber(seq)
end

-- The version before the next one. Where the counter found is not the one this server process wrote last
-- (restart, promotion, FLUSHALL), it jumps, so that no version is ever given twice.
local function last_version(meta, changes, us)
  local rv = tonumber(redis.call('HGET', meta, 'rv') or '0')
  if written_rv[meta] == rv then return rv end
  rv = math.max(rv + 10000000, us, (written_rv[meta] or 0) + 10000000)
  -- The counter may be gone and its changes not: an id below theirs would be refused in the middle of writing.
  if redis.call('EXISTS', changes) == 0 then return rv end
  return math.max(rv, (entry_id(redis.call('XINFO', 'STREAM', changes)[8])))
end

local function keep_version(meta, rv)
  redis.call('HSET', meta, 'rv', integer_text(rv))
  written_rv[meta] = rv
end

local function id_after(id)
  local ms, seq = entry_id(id)
  if seq >= 2 ^ 53 then return integer_text(ms + 1) .. '-0' end -- what `id_before` made: the last of its ms
  return integer_text(ms) .. '-' .. integer_text(seq + 1)
end

local function id_before(id)
  local ms, seq = entry_id(id)
  if seq > 0 then return integer_text(ms) .. '-' .. integer_text(seq - 1) end
  return integer_text(ms - 1) .. '-18446744073709551615'
end

local function fields_of(entry)
  local fields = {}
  for i = 1, #entry[2], 2 do fields[entry[2][i]] = entry[2][i + 1] end
  return fields
end

-- The running number of the last event before entry *id*, of *events* in all; nil: somebody else's entry has none.
local function number_before(incoming, id, events)
  local entry = redis.call('XRANGE', incoming, id, '+', 'COUNT', 1)[1]
  if not entry then return events end
  local fields = fields_of(entry)
  local to = tonumber(fields.to or '')
  return to and to - (tonumber(fields.n or '') or 0)
end

-- Whom the stream is kept for: {group, last delivered id}, or {group, false} where it was destroyed by hand and will
-- be made anew at its floor. Second, what meta holds.
local function groups_kept(incoming, meta)
  local kept, found, known = {}, {}, {}
  for _, info in ipairs(redis.call('XINFO', 'GROUPS', incoming)) do
    kept[#kept + 1] = { info[2], info[8] }
    found[info[2]] = true
  end
  local fields = redis.call('HGETALL', meta)
  for i = 1, #fields, 2 do
    known[fields[i]] = fields[i + 1]
    local group = string.match(fields[i], '^floor:(.*)$')
    if group and not found[group] then kept[#kept + 1] = { group, false } end
  end
  return kept, known
end

local function entry_before(a, b)
  local a_ms, a_seq = entry_id(a)
  local b_ms, b_seq = entry_id(b)
  return a_ms < b_ms or (a_ms == b_ms and a_seq < b_seq)
end

-- Nanoseconds of *ms* in lower case hex: client-go's name suffix. The product passes 2^53, so it is made in halves.
local function hex_ns(ms)
  if ms < 0 then return '-' .. hex_ns(-ms) end
  local low = (ms % 65536) * 1000000
  local high = math.floor(ms / 65536) * 1000000 + math.floor(low / 65536)
  return string.format('%x%04x', high, low % 65536)
end

-- Counts are int32, as in core/v1.
local MOST_COUNT = 2147483647

-- A stored object is one msgpack array. The first five are what client-go's log cache holds, and stay when the
-- event expires; the rest is the event. HELD is there iff an event that takes this one's place was held back: it has
-- the first five of that one, and they are what stays.
local COUNT, FIRST, NAME, NAMESPACE, ENTRY = 1, 2, 3, 4, 5
local STORED_COUNT, LAST, RV, CREATED, UID, MESSAGE, FORM, SUBJECT, BODY = 6, 7, 8, 9, 10, 11, 12, 13, 14
local HELD = 15

local function pack_object(o)
  return cmsgpack.pack({
    o[1], o[2], o[3], o[4], o[5], o[6], o[7], o[8], o[9], o[10], o[11], o[12], o[13], o[14], o[HELD],
  })
end

local function pack_counts(o)
  return cmsgpack.pack(o[HELD] or { o[COUNT], o[FIRST], o[NAME], o[NAMESPACE], o[ENTRY] })
end

-- component, kind, type, reason of a stored event, for counting; positions as in docs/wire.md.
local function subject_of(o)
  local body = cmsgpack.unpack(o[BODY])
  return (body[7][1] or '') .. '\0' .. (body[3][1] or '') .. '\0' .. body[6] .. '\0' .. body[4]
end

local function index_members(o, id)
  return o[NAMESPACE] .. '/' .. o[NAME] .. '\0' .. id, o[SUBJECT] .. '\0' .. id
end

-- One entry of `changes` is one version: kind of change, key, the object as it is stored.
local function add_change(changes, rv, bytes, kind, id, packed)
  redis.call('XADD', changes, integer_text(rv) .. '-0', 't', kind, 'k', id, 'at', integer_text(bytes), 'o', packed)
  return bytes + #packed
end

-- Counts by source. So many sources of each letter have a name, the others are counted together.
local NAMED = 500

-- The half with the least lose their names. Whoever gets one later is credited, under the letter in lower case, with
-- the most that any of these had: so one that counts more than a 250th of all has a name in the end and keeps it,
-- however many come and go beside it (Misra and Gries, frequent items). What is shown holds no credit.
local function drop_names(hash, what)
  local values, rows, found = {}, {}, redis.call('HGETALL', hash)
  for i = 1, #found, 2 do values[found[i]] = tonumber(found[i + 1]) end
  local other = what .. '\0other\0\0\0'
  for field, n in pairs(values) do
    if string.sub(field, 1, 2) == what .. '\0' and field ~= other then
      local credit = string.lower(what) .. string.sub(field, 2)
      rows[#rows + 1] = { field = field, credit = credit, n = n, rank = n + (values[credit] or 0) }
    end
  end
  if #rows < NAMED then return #rows end

  table.sort(rows, function(one, two) return one.rank > two.rank end)
  local kept, together = NAMED / 2, 0
  for r = kept + 1, #rows do
    together = together + rows[r].n
    redis.call('HDEL', hash, rows[r].field, rows[r].credit)
  end
  redis.call('HINCRBY', hash, other, together)
  redis.call('HSET', hash, 'credit\0' .. what, integer_text(rows[kept + 1].rank))
  return kept
end

local function count_by_subject(hash, what, subject, n)
  local field = what .. '\0' .. subject
  if redis.call('HEXISTS', hash, field) == 0 then
    local names = tonumber(redis.call('HGET', hash, 'names\0' .. what) or NAMED)
    if names >= NAMED then names = drop_names(hash, what) end
    redis.call('HSET', hash, 'names\0' .. what, integer_text(names + 1))
    local credit = redis.call('HGET', hash, 'credit\0' .. what)
    if credit then redis.call('HSET', hash, string.lower(what) .. '\0' .. subject, credit) end
  end
  redis.call('HINCRBY', hash, field, n)
end

redis.register_function{
  function_name = 'eb1_build',
  callback = function() return BUILD end,
  flags = { 'no-writes' },
}
