-- beat: raise the heartbeat counter of a worker.
-- Call    beat_command in functions.py
-- KEYS[1] eb:{p}:workers  HASH
-- ARGV[1] field           <group>/<consumer>
-- Reply   the counter
-- Writes  KEYS 1. Allowed when memory is full: HINCRBY is not, and a worker without heartbeats looks dead while it drains.

local function beat(keys, args)
  return ask('HINCRBY', keys[1], args[1], 1)
end

register('beat', beat, { 'allow-oom' })
