-- remove_event: delete one event. The running count of a recorded event stays, for correlation. An event that was written
-- through the store leaves nothing.
-- Call    Functions.remove_event in functions.py
-- KEYS[1] version:<kind> STRING      KEYS[2] note:<of> STRING         KEYS[3] index:name ZSET   KEYS[4] index:object ZSET
-- KEYS[5] index:expiry ZSET   KEYS[6] index:forget ZSET   KEYS[7] changes:<kind> STREAM    KEYS[8] object:… STRING
-- KEYS[9] meta HASH (read: its bus)   KEYS[10] spoiled HASH
-- ARGV[1] rv             only if the event still has this version; '' any
-- ARGV[2] record_ttl_ms  life of the remaining count
-- ARGV[3] bus            id of the bus that the caller has opened, '' is not compared
-- Reply   {'OK', rv} | {'MISSING'} | {'CONFLICT', rv}
-- Writes  all but meta; allowed when memory is full, since it only frees.

local function remove_event(keys, args)
  local version, note, index_name, index_object = keys[1], keys[2], keys[3], keys[4]
  local index_expiry, index_forget, changes, key = keys[5], keys[6], keys[7], keys[8]
  local wanted, record_ttl_ms = args[1], number(args[2], 'record_ttl')

  check_bus(keys[9], args[3])
  finish_noted(note)
  local values = redis.call('MGET', version, key)
  local o = unpack_key(key, values[2], unpack_event)
  if not o or not o[BODY] then return { 'MISSING' } end
  if wanted ~= '' and wanted ~= integer_text(o[RV]) then return { 'CONFLICT', integer_text(o[RV]) } end
  local us = now_us()
  local now_ms = math.floor(us / 1000)
  local rv, bytes = last_version(version, values[1], changes, us)

  local c = new_changes(changes, version, rv, bytes, prefix_of(key), index_name, index_object)
  local strings, steps, forget = {}, {}, {}
  remove_stored(c, strings, steps, forget, o, key, integer_text(now_ms + record_ttl_ms), now_ms)
  step(steps, 'ZREM', index_expiry, id_of(key))
  step_each(steps, forget, 'ZADD', index_forget)
  commit(note, strings, c, steps)
  return { 'OK', integer_text(c.last) }
end

register('remove_event', naming_corrupt(remove_event, 10), { 'allow-oom' })
