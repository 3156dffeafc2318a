-- bury: move one entry of any group to the dead letter, whole or one event of it.
-- Call    Functions.bury in functions.py
-- KEYS[1] incoming STREAM   KEYS[2] dead STREAM   KEYS[3] meta HASH   KEYS[4] attempts:<group> HASH
-- KEYS[5] note:<of> STRING       that of the group; the group of the store has that of its events   KEYS[6] spoiled HASH
-- ARGV[1] group  ARGV[2] consumer  ARGV[3] entry id  ARGV[4] cause (one word)  ARGV[5] deaths  ARGV[6] bytes to keep
-- ARGV[7] 1 acknowledges the entry; 0 keeps it (one event of it was buried, the rest is not handled yet)
-- ARGV[8] next      position at which event-by-event work continues in a kept entry; '' if it is not handled event by event
-- Reply   1 | 0 this consumer lost the entry: nothing was done
-- Writes  all six; allowed when memory is full, since the dead letter is bounded and the stream must drain.

local function bury(keys, args)
  local incoming, dead, meta, attempts, note = keys[1], keys[2], keys[3], keys[4], keys[5]
  local group, consumer, id, cause, deaths, bytes = args[1], args[2], args[3], args[4], args[5], args[6]
  local whole, position = args[7] == '1', args[8]

  finish_noted(note)
  if not owned(incoming, group, consumer, id) then return 0 end
  -- If an earlier call was interrupted after its commit and finished just now, this is the same event again.
  if not whole and position ~= '' then
    local begun = tonumber(ask('HGET', attempts, id .. ':next') or '0') or 0
    if begun >= number(position, 'next') then return 1 end
  end
  local steps, burials = {}, new_burials(dead, math.floor(now_us() / 1000))
  step_burial(steps, burials, group, id, cause, deaths, bytes)
  if whole then
    step(steps, 'XACK', incoming, group, id)
    step(steps, 'HDEL', attempts, id, id .. ':next', id .. ':trying')
  elseif position ~= '' then
    step(steps, 'HSET', attempts, id .. ':next', integer_text(number(position, 'next')))
  end
  step_raised(steps, meta, burials.raised)
  commit(note, {}, nil, steps)
  return 1
end

register('bury', naming_corrupt(bury, 6), { 'allow-oom' })
