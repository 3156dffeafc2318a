-- isolate: note which event of a batch is handled alone next, so that the next owner of the batch knows which event killed
-- the worker. The events before it are done: the batch continues from there. The note has the number of deaths so far: the
-- event is suspected only after one more.
-- Call    Functions.isolate in functions.py
-- KEYS[1] incoming STREAM   KEYS[2] attempts:<group> HASH
-- ARGV[1] group   ARGV[2] consumer   ARGV[3] entry id   ARGV[4] position of the event in its batch, from 0
-- Reply   1 | 0 this consumer lost the entry: nothing was done
-- Writes  KEYS 2. Allowed when memory is full, since a batch that kills must not block the stream.

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
