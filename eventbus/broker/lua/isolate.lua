-- isolate: note which event of a batch is about to be worked alone, so that whoever takes the batch over knows what killed.
-- Those before it are done: the batch goes on from there. The note says how many had died by then: it accuses nobody
-- until one more has.
-- KEYS[1] incoming STREAM   KEYS[2] attempts:<group> HASH
-- ARGV[1] group   ARGV[2] consumer   ARGV[3] entry id   ARGV[4] position of the event in its batch, from 0
-- Reply   1 | 0 not this consumer's any more: nothing was done
-- Writes  KEYS 2. Allowed when memory is full, since a batch that kills must not hold up the drain.

local function isolate(keys, args)
  local incoming, attempts = keys[1], keys[2]
  local group, consumer, id, position = args[1], args[2], args[3], number(args[4], 'position')

  if not owned(incoming, group, consumer, id) then return 0 end
  local deaths = ask('HGET', attempts, id) or '0'

  local at = integer_text(position)
  redis.call('HSET', attempts, id .. ':next', at, id .. ':trying', at .. '/' .. deaths)
  return 1
end

register('isolate', isolate, { 'allow-oom' })
