-- put: create or replace one stored object of any kind but events, if it is as the caller has read it.
-- KEYS[1] meta HASH   KEYS[2] index:name:<kind> ZSET   KEYS[3] changes STREAM   KEYS[4] object:<kind>:<key> STRING
-- ARGV[1] kind        its plural, as nodes
-- ARGV[2] rv          the version it must have; '' it must not exist
-- ARGV[3] namespace   ARGV[4] name
-- ARGV[5] body        the object as JSON, without its version
-- ARGV[6] was         former labels and fields (msgpack) if a selector could tell them from those of body, else ''
-- Reply   {'OK', rv} | {'EXISTS', rv} | {'CONFLICT', rv} | {'MISSING'} | {'FULL'} there is no memory for a new one
-- Writes  all four; allowed when memory is full: what exists is replaced, and `changes` grows no longer than it is.
--         The object lives until `remove`.

-- Any other stored object than an event.
local ITEM_RV, ITEM_NAMESPACE, ITEM_NAME, ITEM_BODY = 1, 2, 3, 4

-- As `add_change`; the entry says its kind, which events do without.
local function add_item_change(changes, rv, bytes, change, kind, id, packed, was)
  redis.call('XADD', changes, integer_text(rv) .. '-0', 't', change, 'k', id, 'at', integer_text(bytes), 'n', kind,
    'o', packed, 'w', was)
  return bytes + #packed + #was
end

local function put(keys, args)
  local meta, index_name, changes, key = keys[1], keys[2], keys[3], keys[4]
  local kind, wanted, namespace, name, body, was = args[1], args[2], args[3], args[4], args[5], args[6]

  check_type(index_name, 'zset')
  check_type(changes, 'stream')
  local packed = redis.call('GET', key)
  local found = packed and cmsgpack.unpack(packed)[ITEM_RV]
  if found and wanted == '' then return { 'EXISTS', integer_text(found) } end
  if not found and wanted ~= '' then return { 'MISSING' } end
  if found and integer_text(found) ~= wanted then return { 'CONFLICT', integer_text(found) } end
  local us = now_us()
  local full = memory_full(math.floor(us / 1000))
  if full and not found then return { 'FULL' } end
  local length = full and redis.call('XLEN', changes)
  local rv = last_version(meta, changes, us) + 1
  local bytes = tonumber(redis.call('HGET', meta, 'changes_bytes') or '0')
  local id = string.sub(key, -32)

  packed = cmsgpack.pack({ rv, namespace, name, body })
  bytes = add_item_change(changes, rv, bytes, found and 'M' or 'A', kind, id, packed, was)
  redis.call('SET', key, packed)
  if not found then redis.call('ZADD', index_name, '0', namespace .. '/' .. name .. '\0' .. id) end
  keep_version(meta, rv)
  redis.call('HSET', meta, 'changes_bytes', integer_text(bytes))
  if length then redis.call('XTRIM', changes, 'MAXLEN', length) end
  return { 'OK', integer_text(rv) }
end

redis.register_function{ function_name = 'eb1_put', callback = put, flags = { 'allow-oom' } }
