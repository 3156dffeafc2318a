-- replay: give a buried entry back to the group that buried it, once.
-- KEYS[1] incoming STREAM   KEYS[2] incoming:meta HASH   KEYS[3] dead STREAM   KEYS[4] meta HASH
-- ARGV[1] dead entry id   ARGV[2] bound  bytes that may be queued
-- Reply   {'OK', entry id in incoming} | {'MISSING'} it is gone: replayed or discarded already
--         {'FULL'} the stream takes none now, or there is no stream   {'NOGROUP'} there is nobody to give it to
-- Writes  all four. No flags: out of memory refuses it. Other groups and watchers pass the entry over: field `g`.

local function replay(keys, args)
  local incoming, incoming_meta, dead, meta = keys[1], keys[2], keys[3], keys[4]
  local id, bound = args[1], number(args[2], 'bound')

  local entry = redis.call('XRANGE', dead, id, id)[1]
  if not entry then return { 'MISSING' } end
  local fields = fields_of(entry)
  local body = fields.b or ''
  -- The stream was destroyed: whoever opens the bus makes it anew, and producers must hear of it.
  if redis.call('EXISTS', incoming) == 0 then return { 'FULL' } end
  local group, found = fields.group or '', false
  for _, each in ipairs((groups_kept(incoming, meta))) do
    if each[1] == group then found = true end
  end
  if not found then return { 'NOGROUP' } end
  local m = redis.call('HMGET', incoming_meta, 'events', 'bytes', 'trimmed')
  local events, bytes = tonumber(m[1] or '0'), tonumber(m[2] or '0')
  if bytes - tonumber(m[3] or '0') + #body > bound then return { 'FULL' } end

  local made = redis.call(
    'XADD', incoming, 'NOMKSTREAM', '*', 'n', '0', 'to', integer_text(events), 'at', integer_text(bytes), 'b', body, 'g', group
  )
  redis.call('HSET', incoming_meta, 'bytes', integer_text(bytes + #body))
  redis.call('XDEL', dead, id)
  redis.call('HINCRBY', meta, 'replayed', '1')
  return { 'OK', made }
end

redis.register_function('eb1_replay', replay)
