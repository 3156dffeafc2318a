-- write_event: create an event under its own name, or replace one that was written so. Recorded ones: overlay_event.
-- KEYS[1] version:<kind> STRING      KEYS[2] note:<what> STRING         KEYS[3] index:name ZSET   KEYS[4] index:object ZSET
-- KEYS[5] index:expiry ZSET   KEYS[6] changes:<kind> STREAM      KEYS[7] incoming STREAM   KEYS[8] incoming:meta HASH
-- KEYS[9] object:… STRING
-- ARGV[1] rv             the version it must have; '' it must not exist
-- ARGV[2] event          msgpack, as it is stored; its versions and times of change are set here
-- ARGV[3] event_ttl_ms   ARGV[4] copy  body of a batch of this one event for those who read `incoming`, '' for none
-- ARGV[5] incoming_bytes bound of what may be queued   ARGV[6] was  as put has it
-- Reply   {'OK', rv} | {'EXISTS', rv or ''} it, or a recorded one of its name | {'CONFLICT', rv} | {'MISSING'}
--         {'FULL'} there is no memory for a new one, or the stream takes no copy; nothing was written
-- Writes  all of them; allowed when memory is full: what exists is replaced. Cut off behind the copy, a call leaves that.

-- Appends a copy that the group `sink` passes over.
local function append_copy(incoming, incoming_meta, known, copy)
  local id = redis.call('XADD', incoming, 'NOMKSTREAM', '*', 'n', '1', 'to', integer_text(known.events + 1),
    'at', integer_text(known.bytes), 'b', copy, 'x', 'sink')
  if not id then return end
  redis.call('HSET', incoming_meta, 'events', integer_text(known.events + 1),
    'bytes', integer_text(known.bytes + #copy), 'last', id, 'length', integer_text(known.length + 1))
end

-- What is known of the stream if it takes the copy, else nil.
local function room_for_copy(incoming, incoming_meta, copy, bound, full)
  local prefix = string.sub(incoming, 1, -9) .. 'producer:'
  local known = known_stream(incoming, incoming_meta, prefix, PRODUCER_LIFE_MS)
  if not known or full or redis.call('EXISTS', incoming) == 0 then return nil end
  if known.bytes - known.trimmed + #copy > bound then return nil end
  return known
end

local function write_event(keys, args)
  local version, note, index_name, index_object, index_expiry = keys[1], keys[2], keys[3], keys[4], keys[5]
  local changes, incoming, incoming_meta, key = keys[6], keys[7], keys[8], keys[9]
  local wanted, o = args[1], unpack_event(args[2])
  local event_ttl_ms, copy, bound = number(args[3], 'event_ttl'), args[4], number(args[5], 'incoming_bytes')
  if not o or not o[BODY] then error({ err = 'ERR eventbus: not an event' }) end

  finish_noted(note)
  local found = redis.call('MGET', version, key)
  local former = unpack_event(found[2])
  if former and not former[BODY] then former = nil end
  if former and wanted == '' then return { 'EXISTS', integer_text(former[RV]) } end
  if not former and wanted ~= '' then return { 'MISSING' } end
  if former and integer_text(former[RV]) ~= wanted then return { 'CONFLICT', integer_text(former[RV]) } end
  local id, full_name = string.sub(key, -32), o[NAMESPACE] .. '/' .. o[NAME]
  if not former then
    local member = ask('ZRANGEBYLEX', index_name, '[' .. full_name .. '\0', '(' .. full_name .. '\1', 'LIMIT', '0', '1')[1]
    if member and string.sub(member, -32) ~= id then return { 'EXISTS', '' } end
  end
  local us = now_us()
  local now_ms = math.floor(us / 1000)
  local full = memory_full(now_ms)
  if full and not former then return { 'FULL' } end
  local known = copy ~= '' and room_for_copy(incoming, incoming_meta, copy, bound, full)
  if copy ~= '' and not known then return { 'FULL' } end
  local rv, bytes = last_version(version, found[1], changes, us)

  local c = new_changes(changes, version, rv, bytes, string.sub(key, 1, -33), index_name, index_object)
  o[RV], o[WRITTEN], o[DUE], o[CHANGED] = rv + 1, false, false, now_ms
  local packed, steps = cmsgpack.pack(o), {}
  local name_member, object_member = index_members(o, id)
  tell(c, former and 'M' or 'A', id, packed, name_member, object_member)
  if former then
    local _, former_member = index_members(former, id)
    if former_member ~= object_member then
      step(steps, 'ZREM', index_object, former_member)
      step(steps, 'ZADD', index_object, '0', object_member)
    end
  end
  step(steps, 'ZADD', index_expiry, integer_text(now_ms + event_ttl_ms), id)
  if args[6] ~= '' then c.was = args[6] end
  if full then step_within(steps, c, 0, true) end
  check_types(c, steps)
  if known then append_copy(incoming, incoming_meta, known, copy) end
  commit(note, { key, packed }, c, steps)
  return { 'OK', integer_text(c.last) }
end

redis.register_function{ function_name = 'eb2_write_event', callback = write_event, flags = { 'allow-oom' } }
