-- discard: delete a dead letter, and count it.
-- Call    Functions.discard in functions.py
-- KEYS[1] incoming STREAM   KEYS[2] incoming:meta HASH   KEYS[3] dead STREAM   KEYS[4] meta HASH
-- KEYS[5] note:<of> STRING       of the calls on the dead letter: an interrupted replay may have left one
-- KEYS[6] spoiled HASH
-- ARGV[1] dead entry id
-- Reply   1 | 0 it does not exist any more
-- Writes  KEYS 3 to 6; allowed when memory is full, since it only frees.

local function discard(keys, args)
  local dead, meta, note = keys[3], keys[4], keys[5]
  local id = args[1]

  finish_noted(note)
  if not ask('XRANGE', dead, id, id)[1] then return 0 end
  local steps = {}
  step(steps, 'XDEL', dead, id)
  step_raised(steps, meta, { discarded = 1 })
  commit(note, {}, nil, steps)
  return 1
end

register('discard', naming_corrupt(discard, 6), { 'allow-oom' })
