-- remove: delete one stored object of any kind but events.
-- Call    Functions.remove in functions.py
-- KEYS[1] version:<kind> STRING   KEYS[2] note:<kind> STRING   KEYS[3] index:name:<kind> ZSET   KEYS[4] changes:<kind> STREAM
-- KEYS[5] object:<kind>:<key> STRING   KEYS[6] meta HASH (read: its bus)   KEYS[7] spoiled HASH
-- ARGV[1] rv             only if the object still has this version; '' any
-- ARGV[2] changes_bytes  bound of the stream
-- ARGV[3] bus            id of the bus that the caller has opened, '' is not compared
-- Reply   {'OK', rv} | {'MISSING'} | {'CONFLICT', rv}
-- Writes  all but meta; allowed when memory is full, since it only frees.

local function remove(keys, args)
  local version, note, index_name, changes, key = keys[1], keys[2], keys[3], keys[4], keys[5]
  local wanted, bound = args[1], number(args[2], 'changes_bytes')

  check_bus(keys[6], args[3])
  finish_noted(note)
  local values = redis.call('MGET', version, key)
  local o = unpack_key(key, values[2], unpack_item)
  if not o then return { 'MISSING' } end
  if wanted ~= '' and wanted ~= integer_text(o[ITEM_RV]) then return { 'CONFLICT', integer_text(o[ITEM_RV]) } end
  local us = now_us()
  local rv, bytes = last_version(version, values[1], changes, us)
  local id = id_of(key)

  local c = new_changes(changes, version, rv, bytes, prefix_of(key), index_name)
  local packed = cmsgpack.pack({ rv + 1, o[ITEM_NAMESPACE], o[ITEM_NAME], o[ITEM_BODY] })
  add_change(c, 'D', id, packed, o[ITEM_NAMESPACE] .. '/' .. o[ITEM_NAME] .. '\0' .. id)
  local steps = {}
  step(steps, 'DEL', key)
  step_within(steps, c, bound, memory_full(math.floor(us / 1000)))
  commit(note, {}, c, steps)
  return { 'OK', integer_text(c.last) }
end

register('remove', naming_corrupt(remove, 7), { 'allow-oom' })
