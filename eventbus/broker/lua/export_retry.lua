-- export_retry: let an export write its dead letter to the sink again. It stays a dead letter until that is done.
-- Call    Functions.export_retry in functions.py
-- KEYS[1] eb:{p}:dead  STREAM   KEYS[2] eb:{p}:later:<sink>  ZSET
-- ARGV[1] dead entry id
-- Reply   1 | 0 it does not exist any more: written or discarded
-- Writes  KEYS 2. No flags: out of memory refuses it.

local function export_retry(keys, args)
  local dead, later = keys[1], keys[2]
  local id = args[1]

  check_type(later, 'zset')
  if not ask('XRANGE', dead, id, id)[1] then return 0 end
  redis.call('ZADD', later, '0', id)
  return 1
end

register('export_retry', export_retry)
