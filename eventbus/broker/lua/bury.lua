-- bury: move one entry of any group to the dead letter, whole.
-- KEYS[1] incoming STREAM   KEYS[2] dead STREAM   KEYS[3] meta HASH   KEYS[4] attempts:<group> HASH
-- ARGV[1] group  ARGV[2] consumer  ARGV[3] entry id  ARGV[4] cause (one word)  ARGV[5] deaths  ARGV[6] bytes to keep
-- ARGV[7] 1 acknowledges the entry; 0 keeps it (one event of it was buried, the rest is still to be handled)
-- ARGV[8] next      position where work one event at a time goes on in an entry that is kept, '' if it is not worked so
-- Reply   1 | 0 not this consumer's any more: nothing was done
-- Writes  all four; allowed when memory is full, since the dead letter is bounded and the stream must drain.

local function bury(keys, args)
  local incoming, dead, meta, attempts = keys[1], keys[2], keys[3], keys[4]
  local group, consumer, id, cause, deaths, bytes = args[1], args[2], args[3], args[4], args[5], args[6]
  local position = args[8] or '' -- not passed by workers of an older build

  check_type(dead, 'stream')
  check_type(attempts, 'hash')
  local pending = redis.call('XPENDING', incoming, group, id, id, 1)
  if not pending[1] or pending[1][2] ~= consumer then return 0 end
  local at = tonumber(redis.call('HGET', meta, 'dead_bytes') or '0')

  if args[7] == '1' then
    redis.call('XACK', incoming, group, id)
    redis.call('HDEL', attempts, id, id .. ':next', id .. ':trying')
  elseif position ~= '' then
    redis.call('HSET', attempts, id .. ':next', integer_text(number(position, 'next')))
  end
  redis.call('XADD', dead, '*', 'id', id, 'group', group, 'cause', cause, 'deaths', deaths, 'at', integer_text(at), 'b', bytes)
  redis.call('HSET', meta, 'dead_bytes', integer_text(at + #bytes))
  redis.call('HINCRBY', meta, 'buried:' .. cause, 1)
  return 1
end

redis.register_function{ function_name = 'eb1_bury', callback = bury, flags = { 'allow-oom' } }
