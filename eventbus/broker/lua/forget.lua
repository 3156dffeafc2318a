-- forget: delete the states of sources after `expire` has removed their last records.
-- Call    Functions.forget in functions.py
-- KEYS[1] meta HASH   KEYS[2] note:<of> STRING   KEYS[3] spoiled HASH
-- KEYS[4…] corr:… STRING   at most 100, each once
-- ARGV[1] source_life_ms  as in correlate_and_store
-- ARGV[2…] ms  for each key: a later use has another record, and keeps the state
-- Reply   {deleted}
-- Writes  all of them; allowed when memory is full, since it only frees.

local FIXED_FORGET = 3

local function forget(keys, args)
  local meta, note, life_ms = keys[1], keys[2], number(args[1], 'source_life')
  finish_noted(note)
  local now_ms = math.floor(now_us() / 1000)

  local gone = {}
  for k = FIXED_FORGET + 1, #keys do
    local left_ms = redis.call('PTTL', keys[k])
    local used_ms = left_ms < 0 and 0 or now_ms - (life_ms - left_ms) -- 0: its value is not ours
    -- Five ms, since a call takes time.
    if left_ms ~= -2 and used_ms <= number(args[k - FIXED_FORGET + 1], 'ms') + 5 then gone[#gone + 1] = keys[k] end
  end
  if #gone == 0 then return { 0 } end
  for n, packed in ipairs(redis.call('MGET', unpack(gone))) do unpack_key(gone[n], packed, unpack_source) end
  local steps = {}
  step_each(steps, gone, 'DEL')
  step_raised(steps, meta, { subjects_evicted = #gone })
  commit(note, {}, nil, steps)
  return { #gone }
end

register('forget', naming_corrupt(forget, 3), { 'allow-oom' })
