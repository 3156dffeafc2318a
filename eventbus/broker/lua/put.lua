-- put: create or replace one stored object of any kind but events, if it has not changed since the caller read it.
-- Call    Functions.put in functions.py
-- KEYS[1] version:<kind> STRING   KEYS[2] note:<kind> STRING   KEYS[3] index:name:<kind> ZSET   KEYS[4] changes:<kind> STREAM
-- KEYS[5] object:<kind>:<key> STRING   KEYS[6] meta HASH (read: its bus)   KEYS[7] spoiled HASH
-- ARGV[1] rv          the version it must have; '' it must not exist
-- ARGV[2] namespace   ARGV[3] name
-- ARGV[4] body        the object as JSON, without its version
-- ARGV[5] was         former labels and fields (msgpack) if a selector may distinguish them from those of body, else ''
-- ARGV[6] changes_bytes  bound of the stream
-- ARGV[7] bus         id of the bus that the caller has opened, '' is not compared
-- Reply   {'OK', rv} | {'EXISTS', rv} | {'CONFLICT', rv} | {'MISSING'} | {'FULL'} there is no memory for a new one
-- Writes  all but meta; allowed when memory is full: existing objects are replaced, and `changes` does not become longer.
--         The object lives until `remove`. A corrupt value counts as missing.

local function put(keys, args)
  local version, note, index_name, changes, key = keys[1], keys[2], keys[3], keys[4], keys[5]
  local wanted, namespace, name, body, was = args[1], args[2], args[3], args[4], args[5]
  local bound = number(args[6], 'changes_bytes')

  check_bus(keys[6], args[7])
  finish_noted(note)
  local values = redis.call('MGET', version, key)
  local o = unpack_key(key, values[2], unpack_item)
  if o and wanted == '' then return { 'EXISTS', integer_text(o[ITEM_RV]) } end
  if not o and wanted ~= '' then return { 'MISSING' } end
  if o and integer_text(o[ITEM_RV]) ~= wanted then return { 'CONFLICT', integer_text(o[ITEM_RV]) } end
  local us = now_us()
  local full = memory_full(math.floor(us / 1000))
  if full and not o then return { 'FULL' } end
  local rv, bytes = last_version(version, values[1], changes, us)
  local id = id_of(key)

  local c = new_changes(changes, version, rv, bytes, prefix_of(key), index_name)
  local packed = cmsgpack.pack({ rv + 1, namespace, name, body })
  add_change(c, o and 'M' or 'A', id, packed, namespace .. '/' .. name .. '\0' .. id)
  if was ~= '' then c.was = was end
  local steps = {}
  step_within(steps, c, bound, full)
  commit(note, { key, packed }, c, steps)
  return { 'OK', integer_text(c.last) }
end

register('put', naming_corrupt(put, 7), { 'allow-oom' })
