-- overlay_event: patch a recorded event for a person or a program. Its count goes on: count, times and message are set by
-- correlation again at the next repeat.
-- Call    Functions.overlay_event in functions.py
-- KEYS[1] version:<kind> STRING      KEYS[2] note:<of> STRING         KEYS[3] index:name ZSET   KEYS[4] index:object ZSET
-- KEYS[5] index:expiry ZSET   KEYS[6] changes:<kind> STREAM      KEYS[7] incoming STREAM   KEYS[8] incoming:meta HASH
-- KEYS[9] object:… STRING   KEYS[10] meta HASH (read: its bus)   KEYS[11] spoiled HASH
-- ARGV[1] rv             the version it must have
-- ARGV[2] overlay        bytes that stay until the event is deleted, '' none   ARGV[3] once  until its next repeat, '' none
-- ARGV[4] event_ttl_ms   ARGV[5] copy  as put_client_event   ARGV[6] incoming_bytes   ARGV[7] was
-- ARGV[8] bus            id of the bus that the caller has opened, '' is not compared
-- Reply   {'OK', rv} | {'CONFLICT', rv} | {'MISSING'} | {'FULL'} the stream takes no copy; nothing was written
-- Writes  all but the names and meta; allowed when memory is full.

local function overlay_event(keys, args)
  local k, wanted, overlay, once = written_keys(keys), args[1], args[2], args[3]
  local event_ttl_ms, copy, bound = number(args[4], 'event_ttl'), args[5], number(args[6], 'incoming_bytes')

  local o, version_text = read_written(k, args[8])
  if not o or o[FORM] == 'w' then return { 'MISSING' } end
  if integer_text(o[RV]) ~= wanted then return { 'CONFLICT', integer_text(o[RV]) } end

  o[OVERLAY], o[ONCE] = overlay ~= '' and overlay, once ~= '' and once
  return store_written(k, o, o, {
    version_text = version_text, event_ttl_ms = event_ttl_ms, copy = copy, bound = bound, was = args[7],
  })
end

register('overlay_event', naming_corrupt(overlay_event, 11), { 'allow-oom' })
