-- The layout of stored objects, the changes of objects in one call, and their versions.

-- A stored event is one msgpack array. The first five fields are those of the log cache of client-go, and stay when the event
-- expires; the rest is the event. Fields after the last known one are kept. A field without a value is false.
local COUNT, FIRST, NAME, NAMESPACE, ENTRY = 1, 2, 3, 4, 5
local STORED_COUNT, LAST, RV, CREATED, UID, MESSAGE, FORM, SUBJECT, BODY = 6, 7, 8, 9, 10, 11, 12, 13, 14
-- The id of the state of its source; false: it has none. It also stays, as the sixth field.
local SOURCE = 15
-- The five fields of a suppressed event that replaces this one: then these five stay.
local HELD = 16
-- Version of the last write (false: RV); time when it was last seen (false: LAST); time of the next refresh; time of the change.
local WRITTEN, SEEN, DUE, CHANGED = 17, 18, 19, 20
-- The fields of a PATCH: permanent, and until the next repeat.
local OVERLAY, ONCE = 21, 22
-- Without any of the fields after SOURCE, these are left out.
local FIELDS = 22
-- Only in a report of suppression and a series: when its running count must be written, ms; false or nil: it is written.
local WRITE_DUE = 23
-- Only in a series: when Redis received its last event, ms. Its end depends on this, not on the clock of a recorder.
local SERIES_LAST = 24

-- Counts are int32, as in core/v1.
local MOST_COUNT = 2147483647

-- Larger numbers are times since 1970; smaller ones in CREATED, ms since FIRST.
local LEAST_TIME = 2 ^ 32

-- Packs a stored event. Afterwards, *o* has no more use.
local function pack_event(o)
  if #o == FIELDS and not (o[HELD] or o[WRITTEN] or o[SEEN] or o[DUE] or o[CHANGED] or o[OVERLAY] or o[ONCE]) then
    for n = FIELDS, SOURCE + 1, -1 do o[n] = nil end
  end
  local first, created = o[FIRST], o[CREATED]
  if type(first) == 'number' and created then
    local after_ms = created - math.floor(first / 1000)
    if after_ms >= 0 and after_ms < LEAST_TIME then o[CREATED] = after_ms end
  end
  local packed = cmsgpack.pack(o)
  o[CREATED] = created
  return packed
end

local function pack_counts(o)
  local held = o[HELD] or o
  return cmsgpack.pack({ held[COUNT], held[FIRST], held[NAME], held[NAMESPACE], held[ENTRY], o[SOURCE] or false })
end

-- Returns a stored event, or its counts; nil: there is none. Second, whether the value is corrupt.
local function unpack_event(packed)
  if not packed then return nil, false end
  local ok, o = pcall(cmsgpack.unpack, packed)
  if not ok or type(o) ~= 'table' or type(o[COUNT]) ~= 'number' or type(o[NAME]) ~= 'string'
    or type(o[NAMESPACE]) ~= 'string' or type(o[ENTRY]) ~= 'string' then return nil, true end
  if #o == ENTRY + 1 then
    local source = o[ENTRY + 1]
    if source and type(source) ~= 'string' then return nil, true end
    o[SOURCE], o[ENTRY + 1] = source, nil
    return o, false
  end
  if #o < SOURCE or o[SOURCE] and type(o[SOURCE]) ~= 'string' or o[SUBJECT] and type(o[SUBJECT]) ~= 'string' or type(o[BODY]) ~= 'string' or type(o[STORED_COUNT]) ~= 'number'
    or type(o[RV]) ~= 'number' or type(o[FORM]) ~= 'string' then return nil, true end
  local held = o[HELD]
  if held and (type(held) ~= 'table' or type(held[COUNT]) ~= 'number' or type(held[NAME]) ~= 'string'
    or type(held[NAMESPACE]) ~= 'string' or type(held[ENTRY]) ~= 'string') then return nil, true end
  for n = #o + 1, FIELDS do o[n] = false end
  local created = o[CREATED]
  if type(created) == 'number' and created < LEAST_TIME and type(o[FIRST]) == 'number' then
    o[CREATED] = created + math.floor(o[FIRST] / 1000)
  end
  return o, false
end

-- Unpacks the body of a recorded event; {}: it is no such body.
local function open_body(body)
  local ok, opened = pcall(cmsgpack.unpack, body)
  return ok and type(opened) == 'table' and opened or {}
end

-- Positions in it, as in docs/wire.md, from 1.
local BODY_REFERENCE, BODY_MESSAGE, BODY_TYPE, BODY_SOURCE, BODY_REPORTER = 3, 5, 6, 7, 11

-- Returns /kind/name of the object of a recorded event.
local function about_in(body)
  local reference = open_body(body)[BODY_REFERENCE]
  if type(reference) ~= 'table' then reference = {} end
  return '/' .. string.lower(reference[1] or '') .. '/' .. (reference[3] or '')
end

-- *about*: /kind/name, if it is known.
local function index_members(o, id, about)
  local subject = o[SUBJECT] or o[NAMESPACE] .. (about or about_in(o[BODY]))
  return o[NAMESPACE] .. '/' .. o[NAME] .. '\0' .. id, subject .. '\0' .. id
end

-- Returns component (of a series: the controller), kind, type, reason of a stored event, for counting; positions as in
-- docs/wire.md. nil: it was written through the store, and its body is JSON.
local function subject_of(o)
  if o[FORM] == 'w' then return nil end
  local ok, body = pcall(cmsgpack.unpack, o[BODY])
  if not ok then return nil end
  local component = o[FORM] == 'e' and body[BODY_REPORTER] or body[7][1] or ''
  return component .. '\0' .. (body[3][1] or '') .. '\0' .. body[6] .. '\0' .. body[4]
end

-- A stored object that is not an event.
local ITEM_RV, ITEM_NAMESPACE, ITEM_NAME, ITEM_BODY = 1, 2, 3, 4

local function unpack_item(packed)
  if not packed then return nil, false end
  local ok, o = pcall(cmsgpack.unpack, packed)
  if not ok or type(o) ~= 'table' or type(o[ITEM_RV]) ~= 'number' or type(o[ITEM_NAMESPACE]) ~= 'string'
    or type(o[ITEM_NAME]) ~= 'string' or type(o[ITEM_BODY]) ~= 'string' then return nil, true end
  return o, false
end

-- The memory of the library between calls of one server process: version key -> version it wrote last. It is empty after a
-- restart or FUNCTION LOAD. A server that was demoted and is promoted again still has it.
local written_rv = {}

-- The history of this server process since it began to accept writes, named by its replication id, which changes at a start
-- and at a promotion. Versions have this name. So the libraries of several builds, which share no memory, recognize each
-- other's versions, and distinguish them from versions of a time before the loss of some writes.
local is_present, was_present, history
do
  local known
  local asked_us = 0

  -- Returns '' if the server does not report it.
  local function read_id()
    known = string.sub(string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)') or '', 1, 16)
    return known
  end

  -- Returns whether *by* is the current history.
  is_present = function(by) return by and by ~= '' and by == read_id() end

  -- The same for *by*, at most 100 ms before *us*: INFO costs several times as much as a look-up, and no server is demoted
  -- and promoted again in that time. If the server does not report it, the answer is yes.
  was_present = function(by, us)
    if not known or us - asked_us >= 100000 or us < asked_us then
      read_id()
      asked_us = us
    end
    return (by or '') == known
  end

  -- Returns the last one that was read. If it is an older one, the next library jumps.
  history = function() return known or read_id() end
end

local function version_text(rv, bytes)
  return integer_text(rv) .. ' ' .. integer_text(bytes) .. ' ' .. history()
end

-- Returns the parts of the value of a version key, as texts; nil: it is corrupt. Older builds wrote no history.
local function version_parts(text)
  return string.match(text or '', '^(%d+) (%d+) ?(%x*)$')
end

-- Returns the newest version of a kind, and the bytes ever added to its changes; *text* is the value of its version key. If
-- this server process did not write it last (restart, promotion, FLUSHALL), the version jumps, so that no version is used
-- twice. An id below the last one of the stream would be refused after the commit.
local function last_version(key, text, changes, us)
  local version, added, by = version_parts(text)
  local rv, bytes = tonumber(version or '0'), tonumber(added or '0')
  if version and written_rv[key] == rv and was_present(by, us) then return rv, bytes end
  if rv >= 2 ^ 52 then version, rv = nil, 0 end -- too large for a counter: a foreign value
  if version and is_present(by) then return rv, bytes end -- another library wrote it, or this one reloaded
  if not version and redis.call('EXISTS', key) == 1 then note_corrupt(key) end
  rv = math.max(rv + 10000000, us, (written_rv[key] or 0) + 10000000)
  check_type(changes, 'stream')
  rv = math.max(rv, (entry_id(last_id(changes))))
  local last = redis.call('XREVRANGE', changes, '+', '-', 'COUNT', 1)[1]
  return rv, math.max(bytes, last and tonumber(fields_of(last).at or '') or 0)
end

-- Calls without changes repair a version that is missing or corrupt: readers would list repeatedly. Returns the value to
-- write, and its version; nil: the version is right.
local function repaired_version(key, text, changes)
  if version_parts(text) then return nil end
  local rv, bytes = last_version(key, text, changes, now_us())
  return version_text(rv, bytes), rv
end

-- The changes of the objects of one kind in one call: one entry of its stream, filled by `add_change`.
local function new_changes(key, version_key, rv, bytes, prefix, index_name, index_object)
  return {
    key = key, version_key = version_key, first = rv + 1, last = rv, at = bytes, bytes = bytes,
    prefix = prefix, index_name = index_name, index_object = index_object or '',
    noted = {}, entry = {}, written = {}, named = {}, named_objects = {}, unnamed = {}, unnamed_objects = {},
  }
end

-- The approximate size of an entry, and of a change, without the object.
local ENTRY_BYTES, CHANGE_BYTES = 60, 40

-- Adds a change; the object in *packed* has the version c.last + 1. The note contains the object only for D, because a
-- deleted object is not stored elsewhere.
local function add_change(c, letter, id, packed, name_member, object_member)
  local entry, noted, change, last = c.entry, c.noted, letter .. id, c.last
  local n = #noted
  if last < c.first then c.bytes = c.bytes + ENTRY_BYTES end
  c.last, c.bytes = last + 1, c.bytes + #packed + CHANGE_BYTES
  entry[n + 1], entry[n + 2] = change, packed
  noted[n + 1], noted[n + 2] = change, letter == 'D' and packed
  if letter ~= 'D' then c.written[#c.written + 1] = id end
  if letter == 'A' then
    local named, objects = c.named, c.named_objects
    n = #named
    named[n + 1], named[n + 2] = '0', name_member
    if object_member then objects[n + 1], objects[n + 2] = '0', object_member end
  elseif letter == 'D' then
    c.unnamed[#c.unnamed + 1] = name_member
    if object_member then c.unnamed_objects[#c.unnamed_objects + 1] = object_member end
  end
end

local GUESSES = 64 -- two or three, except if ids jump

local function bytes_before(entry)
  return tonumber(fields_of(entry).at or '') or 0
end

-- Returns the id of the first entry that a stream must keep for about *bound* bytes, of *added* ever; nil: keep all entries.
-- The `at` of an entry is the number of bytes before it: the search guesses between two known entries, alternately by their
-- bytes and in the middle.
local function kept_from(stream, added, bound)
  local first = ask('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
  if not first or added - bytes_before(first) <= bound then return nil end
  local last = ask('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  local wanted, found = added - bound, last[1]
  local low, low_at, high, high_at = 0, bytes_before(first), 0, bytes_before(last)
  low, high = (entry_id(first[1])), (entry_id(last[1]))
  for n = 1, GUESSES do
    if high - low <= 1 or high_at - wanted <= bound / 16 then break end
    local share = n % 2 == 0 and 0.5 or math.max(0, math.min(1, (wanted - low_at) / (high_at - low_at)))
    local guess = low + 1 + math.floor((high - low - 2) * share)
    local entry = ask('XRANGE', stream, integer_text(guess) .. '-0', '+', 'COUNT', 1)[1]
    local at = bytes_before(entry)
    if at < wanted then low, low_at = (entry_id(entry[1])), at
    else found, high, high_at = entry[1], guess, at end
  end
  return found
end
