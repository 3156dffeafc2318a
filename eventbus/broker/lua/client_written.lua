-- Shared by put_client_event and overlay_event (a client stores or patches an event), and by remove_event and expire.
-- Exports: read_written, remove_stored, store_written, written_keys

-- Returns the KEYS of put_client_event and overlay_event by name; *key* is that of the event.
function written_keys(keys)
  return {
    version = keys[1], note = keys[2], index_name = keys[3], index_object = keys[4], index_expiry = keys[5],
    changes = keys[6], incoming = keys[7], incoming_meta = keys[8], key = keys[9], id = id_of(keys[9]), meta = keys[10],
  }
end

-- Returns the stored event, nil if there is none, and the value of the version key.
function read_written(k, bus)
  check_bus(k.meta, bus)
  finish_noted(k.note)
  local values = redis.call('MGET', k.version, k.key)
  local o = unpack_key(k.key, values[2], unpack_event)
  return o and o[BODY] and o, values[1]
end

-- Returns the state of the stream if it has room for the copy, else nil.
local function room_for_copy(k, copy, bound, full)
  local known = known_stream(k.incoming, k.incoming_meta)
  if not known or full or redis.call('EXISTS', k.incoming) == 0 then return nil end
  if known.bytes - known.trimmed + #copy > bound then return nil end
  return known
end

-- Checks the rights to all writes between the copy and the commit: an event that is copied must be stored. The types are
-- checked already, and memory is no obstacle: it may be full.
local function check_rights(k)
  local function check(...)
    if not redis.acl_check_cmd(...) then
      error({ err = 'NOPERM eventbus: no right to ' .. select(1, ...) .. ' ' .. select(2, ...) })
    end
  end
  check('HSET', k.incoming_meta, 'events', '0')
  check('MSET', k.key, '', k.note, '')
end

-- Appends a copy that the group `sink` skips.
local function append_copy(k, known, copy)
  local id = redis.call('XADD', k.incoming, 'NOMKSTREAM', '*', 'n', '1', 'to', integer_text(known.events + 1),
    'at', integer_text(known.bytes), 'b', copy, 'x', 'sink')
  if not id then return end
  redis.call('HSET', k.incoming_meta, 'events', integer_text(known.events + 1),
    'bytes', integer_text(known.bytes + #copy), 'last', id, 'length', integer_text(known.length + 1))
end

-- Stores *o* in the place of *former* (nil: it is new), and copies it. *given*: version_text, event_ttl_ms, copy, bound, was;
-- for an event that happened *times* since: field, occurrences (the hash of the minute), occurrences_ms.
function store_written(k, o, former, given)
  local us = now_us()
  local now_ms = math.floor(us / 1000)
  local full = memory_full(now_ms)
  if full and not former then return { 'FULL' } end
  local known = given.copy ~= '' and room_for_copy(k, given.copy, given.bound, full)
  if given.copy ~= '' and not known then return { 'FULL' } end
  local rv, bytes = last_version(k.version, given.version_text, k.changes, us)

  local c = new_changes(k.changes, k.version, rv, bytes, prefix_of(k.key), k.index_name, k.index_object)
  o[RV], o[WRITTEN], o[CHANGED] = rv + 1, false, now_ms
  local packed, steps = pack_event(o), {}
  local name_member, object_member = index_members(o, k.id)
  add_change(c, former and 'M' or 'A', k.id, packed, name_member, object_member)
  if former then
    local _, former_member = index_members(former, k.id)
    if former_member ~= object_member then
      step(steps, 'ZREM', k.index_object, former_member)
      step(steps, 'ZADD', k.index_object, '0', object_member)
    end
  end
  step(steps, 'ZADD', k.index_expiry, integer_text(now_ms + given.event_ttl_ms), k.id)
  if (given.times or 0) > 0 then
    step_minute(steps, given.occurrences, { [given.field] = given.times }, integer_text(given.occurrences_ms), full)
  end
  if given.was ~= '' then c.was = given.was end
  if full then step_within(steps, c, 0, true) end
  check_types(c, steps)
  if known then
    check_rights(k)
    append_copy(k, known, given.copy)
  end
  commit(k.note, { k.key, packed }, c, steps)
  return { 'OK', integer_text(c.last) }
end

-- Adds the deletion of event *o*, and puts its remaining count into *strings*, *steps* and *forget*. Returns whether a count
-- remains: not that of a series that has ended.
function remove_stored(c, strings, steps, forget, o, key, forget_at, now_ms)
  local id = id_of(key)
  local name_member, object_member = index_members(o, id)
  local ended = o[FORM] == 'e' and series_ended(series_last_ms(o), now_ms)
  local counts = o[FORM] ~= 'w' and not ended and pack_counts(o)
  o[RV], o[WRITTEN], o[HELD] = c.last + 1, false, false
  add_change(c, 'D', id, pack_event(o), name_member, object_member)
  if counts then
    strings[#strings + 1], strings[#strings + 2] = key, counts
    forget[#forget + 1], forget[#forget + 2] = forget_at, id
  else
    step(steps, 'DEL', key)
  end
  return counts ~= false
end
