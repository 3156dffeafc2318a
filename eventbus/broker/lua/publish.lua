-- publish: append the batch of a producer exactly once. It writes the state of the producer first, and reverts it if the
-- entry is refused. If the call is interrupted before it counts the entry, the next call finds the entry and counts it.
-- Call    publish_command, parse_reply in functions.py
-- KEYS[1] eb:{p}:incoming  STREAM    KEYS[2] eb:{p}:incoming:meta  HASH
-- KEYS[3] eb:{p}:producer:<secret>  HASH  the secret is chosen by the producer and is in no event
-- KEYS[4] eb:{p}:meta  HASH (read: the group that holds the stream)
-- ARGV[1] first       sequence of the first event of the batch, from 1      ARGV[2] n       events, 1..64
-- ARGV[3] body        msgpack bytes                                    ARGV[4] bound   bytes that may be queued
-- ARGV[5] generation  the last one that this producer has seen, '' if none
-- ARGV[6] silent_ms   since the last accepted batch of this producer        ARGV[7] life_ms of the state of the producer
-- ARGV[8] bus         id of the bus that the producer has opened, '' is not compared
-- ARGV[9…]            cause, n, …: events that this producer lost since its last report, for the counters of the bus; an
--                     unknown cause counts as `other`
-- Reply   {'OK', generation} | {'LOST', generation} accepted, but the stream had been destroyed since the last one
--         {'DUP', generation} had it already | {'GAP', last} resend from last + 1 | {'MISSING'} open the bus, call again
--         {'FULL', group} the group that holds the stream, '' if none does
--         {'OTHER'} the stream belongs to another bus: nothing was done, read the bus again
-- Writes  KEYS 1-3. Not `allow-oom`: if Redis has no memory it rejects the call, and the producer has to wait. It runs with the rights of its caller,
--         so its caller could also write these keys directly: every number is checked here, and workers repair them
--         (untrusted_numbers.lua).

-- Returns the losses to count: fields and their new values, and the field of the entry with them.
local function counted_losses(incoming_meta, args)
  local sums, losses, words = {}, {}, {}
  for i = 9, #args, 2 do
    local cause = CAUSES[args[i]] and args[i] or 'other'
    sums[cause] = math.min(MOST, (sums[cause] or 0) + whole(args[i + 1] or '', 'n of ' .. cause, 0, MOST))
  end
  for cause, lost in pairs(sums) do
    add_losses(losses, incoming_meta, cause, lost)
    words[#words + 1] = cause .. ' ' .. integer_text(lost)
  end
  -- In the entry as well: if this call is interrupted, the next one counts them.
  return losses, #words > 0 and { 'l', table.concat(words, ' ') } or {}
end

local function publish(keys, args)
  local incoming, incoming_meta, producer, meta = keys[1], keys[2], keys[3], keys[4]
  local first, n, body = whole(args[1], 'first', 1, MOST - 64), whole(args[2], 'n', 1, 64), args[3]
  local bound, seen_generation = whole(args[4], 'bound', 0, MOST), args[5]
  local silent_ms, life_ms = whole(args[6], 'silent_ms', 0, MOST), whole(args[7], 'life_ms', 1, MOST_LIFE_MS)
  check_body(body)

  local known = known_stream(incoming, incoming_meta)
  if not known then return { 'MISSING' } end
  if args[8] ~= '' and known.bus ~= args[8] then return { 'OTHER' } end
  local state = ask('HMGET', producer, 'last', 'generation')
  local last, answer = counter(state[1]) or 0, 'OK'
  if state[1] then
    if first + n - 1 <= last then return { 'DUP', known.generation } end
    if first ~= last + 1 then return { 'GAP', last } end
    if state[2] ~= known.generation then answer = 'LOST' end
  elseif first > 1 and (seen_generation ~= known.generation or silent_ms < life_ms) then
    -- Not expired: this server never had it, or lost it. The producer sends the batches in its ring again.
    return { 'GAP', 0 }
  end
  if is_full(known, body, bound) then return refuse_full(incoming, incoming_meta, meta, n) end
  local losses, lost = counted_losses(incoming_meta, args)

  redis.call('HSET', producer, 'last', integer_text(first + n - 1), 'generation', known.generation)
  local id = redis.pcall('PEXPIRE', producer, life_ms)
  if type(id) ~= 'table' then id = append_batch(incoming, known, n, body, lost) end
  if type(id) ~= 'string' then
    if state[1] then redis.call('HSET', producer, 'last', state[1], 'generation', state[2] or known.generation)
    else redis.call('DEL', producer) end
    if id then error(id) end
    return { 'MISSING' }
  end
  count_batch(incoming_meta, known, n, body, id, losses)
  return { answer, known.generation }
end

register('publish', publish)
