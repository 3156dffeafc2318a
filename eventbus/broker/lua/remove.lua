-- remove: take one stored object out, as a person's delete does. An event's running count stays: it is the correlator's.
-- KEYS[1] meta HASH   KEYS[2] index:name:<kind> ZSET   KEYS[3] index:object ZSET   KEYS[4] index:expiry ZSET
-- KEYS[5] index:forget ZSET   KEYS[6] changes STREAM   KEYS[7] object:<kind>:<key> STRING
-- ARGV[1] rv             only if the object still has this version; '' any
-- ARGV[2] record_ttl_ms  life of the count that stays
-- ARGV[3] kind           its plural, as nodes; '' events, and only these have what is in KEYS[3], [4] and [5]
-- Reply   {'OK', rv} | {'MISSING'} | {'CONFLICT', rv}
-- Writes  all of them; allowed when memory is full, since it only frees.

local function remove_item(meta, index_name, changes, key, wanted, kind)
  local packed = redis.call('GET', key)
  local o = packed and cmsgpack.unpack(packed)
  if not o then return { 'MISSING' } end
  if wanted ~= '' and wanted ~= integer_text(o[ITEM_RV]) then return { 'CONFLICT', integer_text(o[ITEM_RV]) } end
  check_type(index_name, 'zset')
  check_type(changes, 'stream')
  local rv = last_version(meta, changes, now_us()) + 1
  local bytes = tonumber(redis.call('HGET', meta, 'changes_bytes') or '0')
  local id = string.sub(key, -32)

  packed = cmsgpack.pack({ rv, o[ITEM_NAMESPACE], o[ITEM_NAME], o[ITEM_BODY] })
  bytes = add_item_change(changes, rv, bytes, 'D', kind, id, packed, '')
  redis.call('DEL', key)
  redis.call('ZREM', index_name, o[ITEM_NAMESPACE] .. '/' .. o[ITEM_NAME] .. '\0' .. id)
  keep_version(meta, rv)
  redis.call('HSET', meta, 'changes_bytes', integer_text(bytes))
  return { 'OK', integer_text(rv) }
end

local function remove(keys, args)
  local meta, index_name, index_object, index_expiry = keys[1], keys[2], keys[3], keys[4]
  local index_forget, changes, key = keys[5], keys[6], keys[7]
  local wanted, record_ttl_ms, kind = args[1], number(args[2], 'record_ttl'), args[3] or ''
  if kind ~= '' then return remove_item(meta, index_name, changes, key, wanted, kind) end
  local packed = redis.call('GET', key)
  local o = packed and cmsgpack.unpack(packed)
  if not o or not o[BODY] then return { 'MISSING' } end
  if wanted ~= '' and wanted ~= integer_text(o[RV]) then return { 'CONFLICT', integer_text(o[RV]) } end
  check_type(index_name, 'zset')
  check_type(index_object, 'zset')
  check_type(index_expiry, 'zset')
  check_type(index_forget, 'zset')
  check_type(changes, 'stream')
  local us = now_us()
  local rv = last_version(meta, changes, us) + 1
  local bytes = tonumber(redis.call('HGET', meta, 'changes_bytes') or '0')
  local id = string.sub(key, -32)
  local name_member, object_member = index_members(o, id)
  o[RV] = rv

  bytes = add_change(changes, rv, bytes, 'D', id, pack_object(o))
  redis.call('ZREM', index_name, name_member)
  redis.call('ZREM', index_object, object_member)
  redis.call('ZREM', index_expiry, id)
  redis.call('SET', key, pack_counts(o))
  redis.call('ZADD', index_forget, math.floor(us / 1000) + record_ttl_ms, id)
  keep_version(meta, rv)
  redis.call('HSET', meta, 'changes_bytes', integer_text(bytes))
  return { 'OK', integer_text(rv) }
end

redis.register_function{ function_name = 'eb1_remove', callback = remove, flags = { 'allow-oom' } }
