-- try: note which event of a batch is about to be worked alone, so that whoever finds the note knows what killed.
-- KEYS[1] eb:{p}:attempts:<group>  HASH
-- ARGV[1] entry id   ARGV[2] position of the event in its batch, from 0
-- Reply   1
-- Writes  KEYS 1. Allowed when memory is full, since a batch that kills must not hold up the drain.

local function try(keys, args)
  redis.call('HSET', keys[1], args[1] .. ':trying', integer_text(number(args[2], 'position')))
  return 1
end

redis.register_function{ function_name = 'eb1_try', callback = try, flags = { 'allow-oom' } }
