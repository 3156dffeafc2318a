-- remove: delete one stored object of any kind but events.
-- KEYS[1] version:<kind> STRING   KEYS[2] note:<kind> STRING   KEYS[3] index:name:<kind> ZSET   KEYS[4] changes:<kind> STREAM
-- KEYS[5] object:<kind>:<key> STRING   KEYS[6] meta HASH
-- ARGV[1] rv             only if the object still has this version; '' any
-- ARGV[2] changes_bytes  bound of the stream
-- Reply   {'OK', rv} | {'MISSING'} | {'CONFLICT', rv}
-- Writes  all of them; allowed when memory is full, since it only frees.

local function remove(keys, args)
  local version, note, index_name, changes, key = keys[1], keys[2], keys[3], keys[4], keys[5]
  local wanted, bound = args[1], number(args[2], 'changes_bytes')

  finish_noted(note)
  local found = redis.call('MGET', version, key)
  local o = ours(key, found[2], unpack_item)
  if not o then return { 'MISSING' } end
  if wanted ~= '' and wanted ~= integer_text(o[ITEM_RV]) then return { 'CONFLICT', integer_text(o[ITEM_RV]) } end
  local us = now_us()
  local rv, bytes = last_version(version, found[1], changes, us)
  local id = string.sub(key, -32)

  local c = new_changes(changes, version, rv, bytes, string.sub(key, 1, -33), index_name)
  local packed = cmsgpack.pack({ rv + 1, o[ITEM_NAMESPACE], o[ITEM_NAME], o[ITEM_BODY] })
  tell(c, 'D', id, packed, o[ITEM_NAMESPACE] .. '/' .. o[ITEM_NAME] .. '\0' .. id)
  local steps = {}
  step(steps, 'DEL', key)
  step_within(steps, c, bound, memory_full(math.floor(us / 1000)))
  commit(note, {}, c, steps)
  return { 'OK', integer_text(c.last) }
end

redis.register_function{ function_name = 'eb2_remove', callback = naming_spoiled(remove, 6), flags = { 'allow-oom' } }
