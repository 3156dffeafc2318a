-- discard: let a buried entry go for good, and count it.
-- KEYS[1] dead STREAM   KEYS[2] meta HASH
-- ARGV[1] dead entry id
-- Reply   1 | 0 it is gone already
-- Writes  both; allowed when memory is full, since it only frees.

local function discard(keys, args)
  local dead, meta = keys[1], keys[2]
  local removed = redis.call('XDEL', dead, args[1])
  if removed > 0 then redis.call('HINCRBY', meta, 'discarded', '1') end
  return removed
end

redis.register_function{ function_name = 'eb1_discard', callback = discard, flags = { 'allow-oom' } }
