-- overlay_event: lay a change by a person or a program over a recorded event. Its counts go on: count, times and message
-- are the correlator's again at the next repeat.
-- KEYS[1] version:<kind> STRING      KEYS[2] note:<what> STRING         KEYS[3] index:name ZSET   KEYS[4] index:object ZSET
-- KEYS[5] index:expiry ZSET   KEYS[6] changes:<kind> STREAM      KEYS[7] incoming STREAM   KEYS[8] incoming:meta HASH
-- KEYS[9] object:… STRING
-- ARGV[1] rv             the version it must have
-- ARGV[2] overlay        bytes that stay until the event goes, '' none   ARGV[3] once  until its next repeat, '' none
-- ARGV[4] event_ttl_ms   ARGV[5] copy  as write_event   ARGV[6] incoming_bytes   ARGV[7] was
-- Reply   {'OK', rv} | {'CONFLICT', rv} | {'MISSING'} | {'FULL'} the stream takes no copy; nothing was written
-- Writes  all of them but the names; allowed when memory is full.

local function overlay_event(keys, args)
  local version, note, index_name, index_object, index_expiry = keys[1], keys[2], keys[3], keys[4], keys[5]
  local changes, incoming, incoming_meta, key = keys[6], keys[7], keys[8], keys[9]
  local wanted, overlay, once = args[1], args[2], args[3]
  local event_ttl_ms, copy, bound = number(args[4], 'event_ttl'), args[5], number(args[6], 'incoming_bytes')

  finish_noted(note)
  local found = redis.call('MGET', version, key)
  local o = unpack_event(found[2])
  if not o or not o[BODY] or o[FORM] == 'w' then return { 'MISSING' } end
  if integer_text(o[RV]) ~= wanted then return { 'CONFLICT', integer_text(o[RV]) } end
  local us = now_us()
  local now_ms = math.floor(us / 1000)
  local full = memory_full(now_ms)
  local known = copy ~= '' and room_for_copy(incoming, incoming_meta, copy, bound, full)
  if copy ~= '' and not known then return { 'FULL' } end
  local rv, bytes = last_version(version, found[1], changes, us)

  local id, steps = string.sub(key, -32), {}
  local c = new_changes(changes, version, rv, bytes, string.sub(key, 1, -33), index_name, index_object)
  o[RV], o[WRITTEN], o[CHANGED] = rv + 1, false, now_ms
  o[OVERLAY], o[ONCE] = overlay ~= '' and overlay, once ~= '' and once
  local packed = cmsgpack.pack(o)
  tell(c, 'M', id, packed)
  step(steps, 'ZADD', index_expiry, integer_text(now_ms + event_ttl_ms), id)
  if args[7] ~= '' then c.was = args[7] end
  if full then step_within(steps, c, 0, true) end
  check_types(c, steps)
  if known then append_copy(incoming, incoming_meta, known, copy) end
  commit(note, { key, packed }, c, steps)
  return { 'OK', integer_text(c.last) }
end

redis.register_function{ function_name = 'eb2_overlay_event', callback = overlay_event, flags = { 'allow-oom' } }
