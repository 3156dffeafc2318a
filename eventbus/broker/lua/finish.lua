-- finish: finish a call that was cut off, when no other call may come that would do so.
-- KEYS[1] note:<kind> STRING
-- ARGV[1] name          of the kind, for people who read a log of commands
-- Reply   1 there was something, and it is done | 0
-- Writes  what the note tells of; allowed when memory is full, since that was decided when there was room.

local function finish_kind(keys, args)
  return finish_noted(keys[1]) and 1 or 0
end

redis.register_function{ function_name = 'eb2_finish', callback = finish_kind, flags = { 'allow-oom' } }
