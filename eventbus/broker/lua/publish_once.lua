-- publish_once: append a batch of events that are separate producers, each of one event, and each exactly once. It writes the
-- state of the producers first, and reverts it if the entry is refused. See publish.lua for a call that is interrupted.
-- Call    publish_once_command, parse_once_reply in functions.py
-- KEYS[1] eb:{p}:incoming  STREAM    KEYS[2] eb:{p}:incoming:meta  HASH    KEYS[3] eb:{p}:meta  HASH (read)
-- KEYS[4…] eb:{p}:producer:<secret>  HASH  of each event, 1..64, all different
-- ARGV[1] body     msgpack bytes of a batch with these events, in this order; its producer is new in each call
-- ARGV[2] bound    bytes that may be queued    ARGV[3] life_ms  of the state of the producers
-- ARGV[4] bus      id of the bus that the caller has opened, '' is not compared
-- Reply   {'OK'} | {'DUP', position, …} it had these events already, from 1, and stored none: call again with the others
--         {'MISSING'} | {'FULL', group} | {'OTHER'} as publish
-- Writes  KEYS 1, 2, 4…. Not `allow-oom`, as publish.

local function publish_once(keys, args)
  local incoming, incoming_meta, meta = keys[1], keys[2], keys[3]
  local n, body = whole(integer_text(#keys - 3), 'events', 1, 64), args[1]
  local bound, life_ms = whole(args[2], 'bound', 0, MOST), whole(args[3], 'life_ms', 1, MOST_LIFE_MS)
  check_body(body)

  local known = known_stream(incoming, incoming_meta)
  if not known then return { 'MISSING' } end
  if args[4] ~= '' and known.bus ~= args[4] then return { 'OTHER' } end
  local stored = {}
  for position = 1, n do
    if (counter(ask('HMGET', keys[3 + position], 'last')[1]) or 0) >= 1 then stored[#stored + 1] = position end
  end
  if #stored > 0 then return { 'DUP', unpack(stored) } end
  if is_full(known, body, bound) then return refuse_full(incoming, incoming_meta, meta, n) end

  local id, written = nil, 3
  for i = 4, #keys do
    id = redis.pcall('HSET', keys[i], 'last', '1', 'generation', known.generation)
    if type(id) ~= 'table' then
      written, id = i, redis.pcall('PEXPIRE', keys[i], life_ms)
    end
    if type(id) == 'table' then break end
  end
  if type(id) ~= 'table' then id = append_batch(incoming, known, n, body, {}) end
  if type(id) ~= 'string' then
    for i = 4, written do redis.call('HSET', keys[i], 'last', '0') end -- see publish.lua
    redis.pcall('DEL', unpack(keys, 4))
    if id then error(id) end
    return { 'MISSING' }
  end
  count_batches(incoming_meta, known, {})
  return { 'OK' }
end

register('publish_once', publish_once)
