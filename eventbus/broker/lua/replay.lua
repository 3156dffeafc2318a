-- replay: return a dead letter to the group that buried it, once.
-- Call    Functions.replay in functions.py
-- KEYS[1] incoming STREAM   KEYS[2] incoming:meta HASH   KEYS[3] dead STREAM   KEYS[4] meta HASH
-- KEYS[5] note:<of> STRING       KEYS[6] spoiled HASH
-- ARGV[1] dead entry id   ARGV[2] bound  bytes that may be queued
-- Reply   {'OK', entry id in incoming} | {'MISSING'} it does not exist any more: replayed or discarded
--         {'FULL'} the stream has no room, or there is no stream   {'NOGROUP'} its group does not exist
-- Writes  all six. No flags: out of memory refuses it. Other groups and watchers skip the entry: field `g`.

local function replay(keys, args)
  local incoming, incoming_meta, dead, meta, note = keys[1], keys[2], keys[3], keys[4], keys[5]
  local id, bound = args[1], number(args[2], 'bound')

  finish_noted(note)
  check_type(incoming, 'stream')
  local entry = ask('XRANGE', dead, id, id)[1]
  if not entry then return { 'MISSING' } end
  local fields = fields_of(entry)
  local body, group = fields.b or '', fields.group or ''
  -- The stream was destroyed: the next open of the bus recreates it, and producers must notice that.
  if redis.call('EXISTS', incoming) == 0 then return { 'FULL' } end
  local exists = false
  for _, each in ipairs((groups_kept(incoming, meta))) do
    if each[1] == group then exists = true end
  end
  if not exists then return { 'NOGROUP' } end
  local known = known_stream(incoming, incoming_meta)
  if not known or known.bytes - known.trimmed + #body > bound then return { 'FULL' } end

  local steps = {}
  step(steps, 'APPEND', incoming, incoming_meta, id, group, body, '(' .. known.last)
  step(steps, 'XDEL', dead, id)
  step_raised(steps, meta, { replayed = 1 })
  commit(note, {}, nil, steps)
  return { 'OK', last_id(incoming) }
end

register('replay', naming_corrupt(replay, 6))
