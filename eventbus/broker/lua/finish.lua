-- finish: do what a call that was cut off has left to do, where nothing else may come that would.
-- KEYS[1] note:<kind> STRING   KEYS[2] spoiled HASH
-- ARGV[1] name          of the kind, for who reads a log of commands
-- Reply   1 there was something, and it is done | 0
-- Writes  what the note tells of; allowed when memory is full, since that was decided when there was room.

local function finish_kind(keys, args)
  return finish_noted(keys[1]) and 1 or 0
end

register('finish', naming_spoiled(finish_kind, 2), { 'allow-oom' })
