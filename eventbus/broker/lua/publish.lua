-- publish: append a producer's batch exactly once. It writes the entry first; if anything prevents the rest, the next
-- call finds the entry and finishes it.
-- KEYS[1] eb:{p}:incoming  STREAM    KEYS[2] eb:{p}:incoming:meta  HASH    KEYS[3] eb:{p}:producer:<id>  HASH
-- KEYS[4] eb:{p}:meta  HASH (read: who holds the stream)
-- ARGV[1] first       sequence of the batch's first event, from 1      ARGV[2] n       events, 1..64
-- ARGV[3] body        msgpack bytes                                    ARGV[4] bound   bytes that may be queued
-- ARGV[5] generation  the one this producer saw last, '' if none
-- ARGV[6] silent_ms   since this producer's last accepted batch        ARGV[7] life_ms of the producer's state
-- ARGV[8] bus         id of the bus that the producer has opened, '' does not ask
-- ARGV[9…]            cause, n, …: events this producer lost since it last told, to be counted for all to see
-- Reply   {'OK', generation} | {'LOST', generation} accepted, but the stream had been destroyed since the last one
--         {'DUP', generation} had it already | {'GAP', last} resend from last + 1 | {'MISSING'} open the bus, call again
--         {'FULL', group} the group that holds the stream, '' if none does
--         {'OTHER'} the stream belongs to another bus: nothing was done, look which
-- Writes  KEYS 1-3. No flags: out of memory refuses it, and that is the back-pressure.

local function holder(incoming, meta)
  local name, least = '', nil
  local kept, known = groups_kept(incoming, meta)
  for _, each in ipairs(kept) do
    local floor = known['floor:' .. each[1]] or '0-0'
    if not least or entry_before(floor, least) then name, least = each[1], floor end
  end
  return name
end

local function publish(keys, args)
  local incoming, incoming_meta, producer, meta = keys[1], keys[2], keys[3], keys[4]
  local first, n, body = number(args[1], 'first'), number(args[2], 'n'), args[3]
  local bound, seen_generation = number(args[4], 'bound'), args[5]
  local silent_ms, life_ms = number(args[6], 'silent_ms'), number(args[7], 'life_ms')

  local prefix = string.match(producer, '^(.*:producer:)') or producer
  local known = known_stream(incoming, incoming_meta, prefix, life_ms)
  if not known then return { 'MISSING' } end
  if args[8] ~= '' and known.bus ~= args[8] then return { 'OTHER' } end
  local state = ask('HMGET', producer, 'last', 'generation')
  local last, answer = tonumber(state[1] or '0') or 0, 'OK'
  if state[1] then
    if first + n - 1 <= last then return { 'DUP', known.generation } end
    if first ~= last + 1 then return { 'GAP', last } end
    if state[2] ~= known.generation then answer = 'LOST' end
  elseif first > 1 and (seen_generation ~= known.generation or silent_ms < life_ms) then
    -- Not expired: this server never had it, or lost it. What the ring still has comes again.
    return { 'GAP', 0 }
  end
  if known.bytes - known.trimmed + #body > bound then
    if redis.call('EXISTS', incoming) == 0 then return { 'MISSING' } end
    local held_by = holder(incoming, meta)
    redis.call('HINCRBY', incoming_meta, 'full', n)
    return { 'FULL', held_by }
  end
  local told, lost_words = {}, {}
  for i = 9, #args, 2 do
    local field, lost = 'losses:' .. args[i], number(args[i + 1], 'n')
    told[#told + 1] = field
    told[#told + 1] = integer_text((tonumber(ask('HGET', incoming_meta, field) or '0') or 0) + lost)
    lost_words[#lost_words + 1] = args[i] .. ' ' .. integer_text(lost)
  end
  -- In the entry as well: who finds it cut off counts them.
  local lost = #lost_words > 0 and { 'l', table.concat(lost_words, ' ') } or {}

  local id = redis.call('XADD', incoming, 'NOMKSTREAM', '*', 'n', n, 'to', integer_text(known.events + n),
    'at', integer_text(known.bytes), 'b', body, unpack(lost))
  if not id then return { 'MISSING' } end
  redis.call('HSET', producer, 'last', integer_text(first + n - 1), 'generation', known.generation)
  redis.call('PEXPIRE', producer, life_ms)
  redis.call('HSET', incoming_meta, 'events', integer_text(known.events + n),
    'bytes', integer_text(known.bytes + #body), 'last', id, 'length', integer_text(known.length + 1), unpack(told))
  return { answer, known.generation }
end

redis.register_function('eb2_publish', publish)
