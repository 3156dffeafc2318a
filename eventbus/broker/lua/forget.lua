-- forget: let go of sets of similar messages and of token buckets that can no longer matter, or that are the least
-- recently used beyond a bound. Looks again at every one it is given.
-- KEYS[1] meta HASH   KEYS[2] index:subject ZSET
-- KEYS[3…] aggregate:…, spam:… STRING   in pairs, least recently used first, at most 100 pairs
-- ARGV[1] max_subjects  bound   ARGV[2] set_life_ms   ARGV[3] bucket_life_ms  as record gives them
-- Reply   {let go, of these beyond the bound}
-- Writes  all of them; allowed when memory is full, since it only frees.

local function forget(keys, args)
  local meta, index_subject = keys[1], keys[2]
  local max_subjects, bucket_life_ms = number(args[1], 'max_subjects'), number(args[3], 'bucket_life')
  local now_ms = math.floor(now_us() / 1000)
  local over_ms = now_ms - math.max(number(args[2], 'set_life'), bucket_life_ms)

  local subjects = redis.call('ZCARD', index_subject)
  local gone, evicted = 0, 0
  for k = 3, #keys, 2 do
    local similar, bucket = keys[k], keys[k + 1]
    local member = string.sub(similar, -32) .. string.sub(bucket, -32)
    local used_ms = tonumber(redis.call('ZSCORE', index_subject, member) or nil)
    if used_ms and (subjects > max_subjects or used_ms <= over_ms) then
      if used_ms > over_ms then evicted = evicted + 1 end
      redis.call('DEL', similar)
      -- Other reasons share the bucket: it goes if none of them has used it since. Five ms, since a call takes time.
      if redis.call('PTTL', bucket) <= bucket_life_ms - (now_ms - used_ms) + 5 then redis.call('DEL', bucket) end
      redis.call('ZREM', index_subject, member)
      subjects, gone = subjects - 1, gone + 1
    end
  end
  if evicted > 0 then redis.call('HINCRBY', meta, 'subjects_evicted', evicted) end
  return { gone, evicted }
end

redis.register_function{ function_name = 'eb1_forget', callback = forget, flags = { 'allow-oom' } }
