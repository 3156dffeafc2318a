-- publish: append consecutive batches of a producer, each exactly once. It writes the state of the producer first, and reverts
-- it if an entry is refused. If the call is interrupted before it counts its entries, the next call finds and counts them.
-- Call    publish_command, parse_replies in functions.py
-- KEYS[1] eb:{p}:incoming  STREAM    KEYS[2] eb:{p}:incoming:meta  HASH
-- KEYS[3] eb:{p}:producer:<secret>  HASH  the secret is chosen by the producer and is in no event
-- KEYS[4] eb:{p}:meta  HASH (read: the group that holds the stream)
-- ARGV[1] bound       bytes that may be queued
-- ARGV[2] generation  the last one that this producer has seen, '' if none
-- ARGV[3] silent_ms   since the last accepted batch of this producer        ARGV[4] life_ms of the state of the producer
-- ARGV[5] bus         id of the bus that the producer has opened, '' is not compared
-- ARGV[6] first       sequence of the first event, from 1
-- ARGV[7] losses      how many pairs of cause and n follow: events that this producer lost since its last report, for the
--                     counters of the bus, with the first batch; an unknown cause counts as `other`
-- ARGV[8…]            these pairs; then of each batch, at most 64: n  events, 1..64;  body  msgpack bytes
-- Reply   {had, stored, before, generation, …}  the number of batches that it had already, then of those that it has stored;
--         the generation of the stream with the last batch before this call, and now. They differ if the stream has been
--         destroyed in between. If the next batch is not stored, also why:
--         'GAP', last  resend from last + 1  |  'MISSING'  open the bus, call again
--         'FULL', group  the group that holds the stream, '' if none does
--         'OTHER'  the stream belongs to another bus: nothing was done, read the bus again
-- Writes  KEYS 1-3. Not `allow-oom`: if Redis has no memory it rejects the call, and the producer has to wait. It runs with
--         the rights of its caller, so its caller could also write these keys directly: every number is checked here, and
--         workers repair them (untrusted_numbers.lua).

local MOST_BATCHES = 64 -- a longer call would delay other clients
local EVENTS_OF = {} -- of a batch, by their text
for n = 1, 64 do EVENTS_OF[n .. ''] = n end

-- Returns the losses to count: fields and their new values, and the field of the entry with them.
local function counted_losses(incoming_meta, args, to)
  local sums, losses, words = {}, {}, {}
  for i = 8, to, 2 do
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

-- Returns the events of each batch, in the order of the call. Everything is checked before the first write.
local function sizes_of(args, start)
  local sizes = {}
  for i = start, #args, 2 do
    local n, body = EVENTS_OF[args[i]], args[i + 1]
    if not n or not body then error({ err = 'ERR eventbus: n is not a number from 1 to 64' }) end
    check_body(body)
    sizes[#sizes + 1] = n
  end
  if #sizes == 0 or #sizes > MOST_BATCHES then error({ err = 'ERR eventbus: a call has 1 to 64 batches' }) end
  return sizes
end

local function publish(keys, args)
  local incoming, incoming_meta, producer, meta = keys[1], keys[2], keys[3], keys[4]
  local bound, seen_generation = whole(args[1], 'bound', 0, MOST), args[2]
  local silent_ms, life_ms = whole(args[3], 'silent_ms', 0, MOST), whole(args[4], 'life_ms', 1, MOST_LIFE_MS)
  local first = whole(args[6], 'first', 1, MOST - 64 * MOST_BATCHES)
  local start = args[7] == '0' and 8 or 8 + 2 * whole(args[7], 'losses', 0, 64)
  local sizes = sizes_of(args, start)

  local known = known_stream(incoming, incoming_meta)
  if not known then return { 0, 0, '', '', 'MISSING' } end
  if args[5] ~= '' and known.bus ~= args[5] then return { 0, 0, '', '', 'OTHER' } end
  local state = ask('HMGET', producer, 'last', 'generation')
  local last, had, before = counter(state[1]) or 0, 0, state[1] and state[2] or known.generation
  if state[1] then
    while had < #sizes and first + sizes[had + 1] - 1 <= last do
      had, first = had + 1, first + sizes[had + 1]
    end
    if had == #sizes then return { had, 0, before, known.generation } end
    if first ~= last + 1 then return { had, 0, before, known.generation, 'GAP', last } end
  elseif first > 1 and (seen_generation ~= known.generation or silent_ms < life_ms) then
    -- Not expired: this server never had it, or lost it. The producer sends the batches in its ring again.
    return { 0, 0, before, known.generation, 'GAP', 0 }
  end
  local fits, bytes, final = had, known.bytes - known.trimmed, first - 1
  while fits < #sizes and bytes + #args[start + 2 * fits + 1] <= bound do
    fits, bytes, final = fits + 1, bytes + #args[start + 2 * fits + 1], final + sizes[fits + 1]
  end

  local stored = had
  if fits > had then
    local losses, lost = {}, {}
    if had == 0 and start > 8 then losses, lost = counted_losses(incoming_meta, args, start - 1) end
    redis.call('HSET', producer, 'last', integer_text(final), 'generation', known.generation)
    local id = redis.pcall('PEXPIRE', producer, life_ms)
    while stored < fits and id and type(id) ~= 'table' do
      id = append_batch(incoming, known, sizes[stored + 1], args[start + 2 * stored + 1], lost)
      if type(id) == 'string' then stored, lost = stored + 1, {} end
    end
    if stored == had then
      -- By HSET, because the caller has this right. A caller without the rights to XADD and DEL would lose the batch.
      redis.call('HSET', producer, 'last', state[1] or integer_text(first - 1), 'generation', before)
      if not state[1] then redis.pcall('DEL', producer) end
    else
      if stored < fits then
        for i = stored + 1, fits do final = final - sizes[i] end
        redis.call('HSET', producer, 'last', integer_text(final))
      end
      count_batches(incoming_meta, known, losses)
    end
    if type(id) == 'table' then error(id) end
    if not id then return { had, stored - had, before, known.generation, 'MISSING' } end
  end
  if fits == #sizes then return { had, stored - had, before, known.generation } end
  local refusal = refuse_full(incoming, incoming_meta, meta, sizes[fits + 1])
  return { had, stored - had, before, known.generation, refusal[1], refusal[2] }
end

register('publish', publish)
