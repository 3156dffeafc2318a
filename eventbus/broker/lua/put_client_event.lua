-- put_client_event: create or replace an event that a client writes under its own name. It stores no recorded events:
-- correlate_and_store.lua stores those, and overlay_event changes them.
-- Call    Functions.put_client_event_command, decode_written in functions.py
-- KEYS[1] version:<kind> STRING      KEYS[2] note:<of> STRING         KEYS[3] index:name ZSET   KEYS[4] index:object ZSET
-- KEYS[5] index:expiry ZSET   KEYS[6] changes:<kind> STREAM      KEYS[7] incoming STREAM   KEYS[8] incoming:meta HASH
-- KEYS[9] object:… STRING   KEYS[10] meta HASH (read: its bus)   KEYS[11] occurrences:<minute> HASH   KEYS[12] spoiled HASH
-- ARGV[1] rv             the version it must have; '' it must not exist
-- ARGV[2] event          msgpack, as it is stored; its versions and times of change are set here
-- ARGV[3] event_ttl_ms   ARGV[4] copy  body of a batch of this one event for readers of `incoming`, '' for none
-- ARGV[5] incoming_bytes bound of the queued bytes   ARGV[6] was  as in put
-- ARGV[7] bus            id of the bus that the caller has opened, '' is not compared
-- ARGV[8] times          how often it happened since rv; 0 counts nothing   ARGV[9] field  of occurrences that counts it
-- ARGV[10] occurrences_ms  life of the occurrences of a minute
-- Reply   {'OK', rv} | {'EXISTS', rv or ''} it, or a recorded one of its name | {'CONFLICT', rv} | {'MISSING'}
--         {'FULL'} there is no memory for a new one, or the stream takes no copy; nothing was written
-- Writes  all but meta; allowed when memory is full: existing events are replaced.

local function put_client_event(keys, args)
  local k, wanted, o = written_keys(keys), args[1], unpack_event(args[2])
  local event_ttl_ms, copy, bound = number(args[3], 'event_ttl'), args[4], number(args[5], 'incoming_bytes')
  if not o or not o[BODY] then error({ err = 'ERR eventbus: not an event' }) end

  local former, version_text = read_written(k, args[7])
  if former and wanted == '' then return { 'EXISTS', integer_text(former[RV]) } end
  if not former and wanted ~= '' then return { 'MISSING' } end
  if former and integer_text(former[RV]) ~= wanted then return { 'CONFLICT', integer_text(former[RV]) } end
  if not former then
    local name = o[NAMESPACE] .. '/' .. o[NAME]
    local member = ask('ZRANGEBYLEX', k.index_name, '[' .. name .. '\0', '(' .. name .. '\1', 'LIMIT', '0', '1')[1]
    if member and id_of(member) ~= k.id then return { 'EXISTS', '' } end
  end

  o[DUE] = false
  return store_written(k, o, former, {
    version_text = version_text, event_ttl_ms = event_ttl_ms, copy = copy, bound = bound, was = args[6],
    times = number(args[8], 'times'), field = args[9], occurrences = keys[11], occurrences_ms = number(args[10], 'occurrences'),
  })
end

register('put_client_event', naming_corrupt(put_client_event, 12), { 'allow-oom' })
