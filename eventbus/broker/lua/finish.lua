-- finish: complete an interrupted call on objects of a kind, if no other call of the kind may come.
-- Call    Functions.finish in functions.py
-- KEYS[1] note:<kind> STRING   KEYS[2] spoiled HASH
-- ARGV[1] name          of the kind, for readers of a log of commands
-- Reply   1 there was one, and it is complete | 0
-- Writes  the writes in the note; allowed when memory is full, since there was room when they were decided.

local function finish_kind(keys, args)
  return finish_noted(keys[1]) and 1 or 0
end

register('finish', naming_corrupt(finish_kind, 2), { 'allow-oom' })
