-- forget: delete the states of sources that are no longer needed, or that are the least recently used beyond a bound. Checks
-- every given one again.
-- Call    Functions.forget in functions.py
-- KEYS[1] meta HASH   KEYS[2] index:subject ZSET   KEYS[3] note:<of> STRING   KEYS[4] spoiled HASH
-- KEYS[5…] corr:… STRING   least recently used first, at most 100
-- ARGV[1] max_sources  bound   ARGV[2] source_life_ms  as in correlate_and_store
-- Reply   {deleted, of these beyond the bound}
-- Writes  all of them; allowed when memory is full, since it only frees.

local FIXED_FORGET = 4

local function forget(keys, args)
  local meta, index_subject, note = keys[1], keys[2], keys[3]
  local max_sources = number(args[1], 'max_sources')
  finish_noted(note)
  local over_ms = math.floor(now_us() / 1000) - number(args[2], 'source_life')

  local sources = ask('ZCARD', index_subject)
  local gone, ids, evicted = {}, {}, 0
  for k = FIXED_FORGET + 1, #keys do
    local key = keys[k]
    local used_ms = tonumber(ask('ZSCORE', index_subject, id_of(key)) or nil)
    if used_ms and (sources > max_sources or used_ms <= over_ms) then
      if used_ms > over_ms then evicted = evicted + 1 end
      gone[#gone + 1], ids[#ids + 1] = key, id_of(key)
      sources = sources - 1
    end
  end
  if #gone == 0 then return { 0, 0 } end
  for n, packed in ipairs(redis.call('MGET', unpack(gone))) do unpack_key(gone[n], packed, unpack_source) end
  local steps = {}
  step_each(steps, gone, 'DEL')
  step_each(steps, ids, 'ZREM', index_subject)
  step_raised(steps, meta, { subjects_evicted = evicted })
  commit(note, {}, nil, steps)
  return { #gone, evicted }
end

register('forget', naming_corrupt(forget, 4), { 'allow-oom' })
