-- expire: take events out of the store whose time has come, or that are the least recently written beyond a
-- bound, with a DELETED change each; forget counts likewise. Looks again at every key it is given.
-- KEYS[1] meta HASH   KEYS[2] index:name ZSET   KEYS[3] index:object ZSET   KEYS[4] index:expiry ZSET
-- KEYS[5] index:forget ZSET   KEYS[6] changes STREAM   KEYS[7] suppressed HASH
-- KEYS[8…] object:… STRING    candidates, oldest first, at most 100
-- ARGV[1] max_stored  ARGV[2] max_records  bounds   ARGV[3] event_ttl_ms   ARGV[4] record_ttl_ms
-- ARGV[5] now_ms      '' the server's clock (workers), else this (tests)
-- Reply   {expired, evicted, forgotten, counts evicted}
-- Writes  all of them; allowed when memory is full, since it only frees.

local function expire(keys, args)
  local meta, index_name, index_object, index_expiry = keys[1], keys[2], keys[3], keys[4]
  local index_forget, changes, suppressed = keys[5], keys[6], keys[7]
  local max_stored, max_records = number(args[1], 'max_stored'), number(args[2], 'max_records')
  local event_ttl_ms, record_ttl_ms = number(args[3], 'event_ttl'), number(args[4], 'record_ttl')
  check_type(index_name, 'zset')
  check_type(index_object, 'zset')
  check_type(changes, 'stream')
  check_type(suppressed, 'hash')
  local us = now_us()
  local now_ms = args[5] ~= '' and number(args[5], 'now') or math.floor(us / 1000)

  local stored = redis.call('ZCARD', index_expiry)
  local counts = redis.call('ZCARD', index_forget)
  local rv = last_version(meta, changes, us)
  local bytes = tonumber(redis.call('HGET', meta, 'changes_bytes') or '0')
  local reply = { 0, 0, 0, 0 }

  local changed = false
  local function change(kind, id, o)
    rv, changed = rv + 1, true
    o[RV] = rv
    local packed = pack_object(o)
    bytes = add_change(changes, rv, bytes, kind, id, packed)
    return packed
  end

  for k = 8, #keys do
    local key = keys[k]
    local id = string.sub(key, -32)
    local due = tonumber(redis.call('ZSCORE', index_expiry, id) or nil)
    local forget = not due and tonumber(redis.call('ZSCORE', index_forget, id) or nil)
    if due and (due <= now_ms or stored > max_stored) then
      local packed = redis.call('GET', key)
      local o = packed and cmsgpack.unpack(packed)
      if not o or not o[BODY] then
        redis.call('ZREM', index_expiry, id)
      elseif o[FORM] == 's' and o[COUNT] ~= o[STORED_COUNT] and due <= now_ms then
        -- The last of what was held back had no accepted event after it: it is told now.
        o[STORED_COUNT] = o[COUNT]
        redis.call('SET', key, change('M', id, o))
        redis.call('ZADD', index_expiry, now_ms + event_ttl_ms, id)
      else
        local name_member, object_member = index_members(o, id)
        local what = due <= now_ms and 1 or 2
        change('D', id, o)
        redis.call('ZREM', index_name, name_member)
        redis.call('ZREM', index_object, object_member)
        redis.call('ZREM', index_expiry, id)
        redis.call('SET', key, pack_counts(o))
        redis.call('ZADD', index_forget, now_ms + record_ttl_ms, id)
        stored, counts, reply[what] = stored - 1, counts + 1, reply[what] + 1
        if what == 2 then count_by_subject(suppressed, 'E', subject_of(o), 1) end
      end
    elseif forget and (forget <= now_ms or stored + counts > max_records) then
      local what = forget <= now_ms and 3 or 4
      redis.call('DEL', key)
      redis.call('ZREM', index_forget, id)
      counts, reply[what] = counts - 1, reply[what] + 1
    end
  end
  if changed then
    keep_version(meta, rv)
    redis.call('HSET', meta, 'changes_bytes', integer_text(bytes))
  end
  for what, name in ipairs({ 'expired', 'evicted', 'forgotten', 'forgotten_early' }) do
    if reply[what] > 0 then redis.call('HINCRBY', meta, name, reply[what]) end
  end
  return reply
end

redis.register_function{ function_name = 'eb1_expire', callback = expire, flags = { 'allow-oom' } }
