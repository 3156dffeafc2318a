-- notify_release: let another worker notify, at once.
-- KEYS[1] eb:{p}:notify  HASH  of partition 0
-- ARGV[1] consumer
-- Reply   1 | 0 it was not this consumer's
-- Writes  KEYS 1; allowed when memory is full, since it only frees.

local function notify_release(keys, args)
  local notify, consumer = keys[1], args[1]

  local holder = ask('HGET', notify, 'holder')

  redis.call('HDEL', notify, 'file:' .. consumer)
  if holder ~= consumer then return 0 end
  redis.call('HDEL', notify, 'holder')
  return 1
end

register('notify_release', notify_release, { 'allow-oom' })
