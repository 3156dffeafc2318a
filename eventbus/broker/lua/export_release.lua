-- export_release: let another worker export this partition to the sink immediately.
-- Call    ExportStore.release in exports.py
-- KEYS[1] eb:{p}:export:<sink>  HASH  holder   KEYS[2] eb:{p}:workers  HASH
-- ARGV[1] sink   ARGV[2] consumer
-- Reply   1 | 0 this consumer did not hold it
-- Writes  both; allowed when memory is full, since it only frees.

local function export_release(keys, args)
  local export, workers = keys[1], keys[2]
  local sink, consumer = args[1], args[2]

  check_type(workers, 'hash')
  local holder = ask('HGET', export, 'holder')

  redis.call('HDEL', workers, 'export:' .. sink .. '/' .. consumer)
  if holder ~= consumer then return 0 end
  redis.call('HDEL', export, 'holder')
  return 1
end

register('export_release', export_release, { 'allow-oom' })
