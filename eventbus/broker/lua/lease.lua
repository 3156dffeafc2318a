-- lease: become the one worker that exports this partition to one sink, or learn who is.
-- KEYS[1] eb:{p}:export:<sink>  HASH  holder, position, generation, sign_ms
-- KEYS[2] eb:{p}:workers  HASH   KEYS[3] eb:{p}:meta  HASH
-- ARGV[1] sink    ARGV[2] consumer
-- ARGV[3] holder  whom this consumer has seen stand still, '' if nobody   ARGV[4] beats  the counter it stood at
-- Reply   {'OK', position or '', generation} | {'HELD', holder, its beats or ''}
-- Writes  all three; allowed when memory is full, since whoever waits must be able to take over. generation is of the
--         sink's first worker, or of the first after it was forgotten. sign_ms is for people to look at: no worker
--         decides by it.

local function lease(keys, args)
  local export, workers, meta = keys[1], keys[2], keys[3]
  local sink, consumer, seen, seen_beats = args[1], args[2], args[3], args[4]

  local holder = redis.call('HGET', export, 'holder') or ''
  local start = 'export:' .. sink .. '/'
  if holder ~= '' and holder ~= consumer then
    local beats = redis.call('HGET', workers, start .. holder) or ''
    if holder ~= seen or beats ~= seen_beats then return { 'HELD', holder, beats } end
  end
  local position = redis.call('HGET', export, 'position') or ''
  local now_ms = integer_text(math.floor(now_us() / 1000))

  if holder ~= '' and holder ~= consumer then redis.call('HDEL', workers, start .. holder) end
  redis.call('HSET', export, 'holder', consumer, 'sign_ms', now_ms)
  redis.call('HSETNX', export, 'generation', integer_text(now_us()))
  redis.call('HINCRBY', workers, start .. consumer, 1)
  redis.call('HSET', meta, 'export:' .. sink, '1')
  return { 'OK', position, redis.call('HGET', export, 'generation') }
end

redis.register_function{ function_name = 'eb1_lease', callback = lease, flags = { 'allow-oom' } }
