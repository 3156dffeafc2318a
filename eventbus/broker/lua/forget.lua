-- forget: delete sets of similar messages and token buckets that are no longer needed, or that are the least recently used
-- beyond a bound. Checks every given one again.
-- Call    Functions.forget in functions.py
-- KEYS[1] meta HASH   KEYS[2] index:subject ZSET   KEYS[3] note:<of> STRING   KEYS[4] spoiled HASH
-- KEYS[5…] aggregate:…, spam:… STRING   in pairs, least recently used first, at most 100 pairs
-- ARGV[1] max_subjects  bound   ARGV[2] set_life_ms   ARGV[3] bucket_life_ms  as in correlate_and_store
-- Reply   {deleted, of these beyond the bound}
-- Writes  all of them; allowed when memory is full, since it only frees.

local FIXED_FORGET = 4

local function forget(keys, args)
  local meta, index_subject, note = keys[1], keys[2], keys[3]
  local max_subjects, bucket_life_ms = number(args[1], 'max_subjects'), number(args[3], 'bucket_life')
  finish_noted(note)
  local now_ms = math.floor(now_us() / 1000)
  local over_ms = now_ms - math.max(number(args[2], 'set_life'), bucket_life_ms)

  local subjects = ask('ZCARD', index_subject)
  local gone, members, evicted, checked = {}, {}, 0, {}
  for k = FIXED_FORGET + 1, #keys, 2 do
    local similar, bucket = keys[k], keys[k + 1]
    local member = id_of(similar) .. id_of(bucket)
    local used_ms = tonumber(ask('ZSCORE', index_subject, member) or nil)
    if used_ms and (subjects > max_subjects or used_ms <= over_ms) then
      if used_ms > over_ms then evicted = evicted + 1 end
      gone[#gone + 1] = similar
      checked[#checked + 1], checked[#checked + 2] = similar, bucket
      -- Other reasons share the bucket: delete it if none of them has used it since. Five ms, since a call takes time.
      local life_ms = redis.call('PTTL', bucket)
      if life_ms <= bucket_life_ms - (now_ms - used_ms) + 5 then gone[#gone + 1] = bucket end
      subjects, members[#members + 1] = subjects - 1, member
    end
  end
  if #members == 0 then return { 0, 0 } end
  for n, packed in ipairs(redis.call('MGET', unpack(checked))) do
    unpack_key(checked[n], packed, n % 2 == 1 and unpack_similar or unpack_bucket)
  end
  local steps = {}
  step_each(steps, gone, 'DEL')
  step_each(steps, members, 'ZREM', index_subject)
  step_raised(steps, meta, { subjects_evicted = evicted })
  commit(note, {}, nil, steps)
  return { #members, evicted }
end

register('forget', naming_corrupt(forget, 4), { 'allow-oom' })
