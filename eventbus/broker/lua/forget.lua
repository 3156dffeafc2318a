-- forget: delete sets of similar messages and token buckets that can no longer matter, or that are the least recently
-- used beyond a bound. Checks every one that it is given again.
-- KEYS[1] meta HASH   KEYS[2] index:subject ZSET   KEYS[3] note:<what> STRING   KEYS[4] spoiled HASH
-- KEYS[5…] aggregate:…, spam:… STRING   in pairs, least recently used first, at most 100 pairs
-- ARGV[1] max_subjects  bound   ARGV[2] life_ms  after their last use, by the server's clock
-- Reply   {let go, of these beyond the bound}
-- Writes  all of them; allowed when memory is full, since it only frees.

local FIXED_FORGET = 4

local function forget(keys, args)
  local meta, index_subject, note = keys[1], keys[2], keys[3]
  local max_subjects, life_ms = number(args[1], 'max_subjects'), number(args[2], 'life')
  finish_noted(note)
  local over_ms = math.floor(now_us() / 1000) - life_ms

  local subjects = ask('ZCARD', index_subject)
  local gone, members, used, evicted, looked_at = {}, {}, {}, 0, {}
  for k = FIXED_FORGET + 1, #keys, 2 do
    local similar, bucket = keys[k], keys[k + 1]
    local member = id_of(similar) .. id_of(bucket)
    local used_ms = tonumber(ask('ZSCORE', index_subject, member) or nil)
    if used_ms and (subjects > max_subjects or used_ms <= over_ms) then
      if used_ms > over_ms then evicted = evicted + 1 end
      looked_at[#looked_at + 1], looked_at[#looked_at + 2] = similar, bucket
      subjects, members[#members + 1], used[#used + 1] = subjects - 1, member, used_ms
    end
  end
  if #members == 0 then return { 0, 0 } end
  local found = redis.call('MGET', unpack(looked_at))
  for n, used_ms in ipairs(used) do
    local similar, bucket = looked_at[2 * n - 1], looked_at[2 * n]
    ours(similar, found[2 * n - 1], unpack_similar)
    local tokens = ours(bucket, found[2 * n], unpack_bucket)
    gone[#gone + 1] = similar
    -- Other reasons share the bucket: it goes if none of them has used it since.
    if (tokens and tokens[USED] or 0) <= used_ms then gone[#gone + 1] = bucket end
  end
  local steps = {}
  step_each(steps, gone, 'DEL')
  step_each(steps, members, 'ZREM', index_subject)
  step_raised(steps, meta, { subjects_evicted = evicted })
  commit(note, {}, nil, steps)
  return { #members, evicted }
end

redis.register_function{ function_name = 'eb2_forget', callback = naming_spoiled(forget, 4), flags = { 'allow-oom' } }
