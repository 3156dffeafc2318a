-- record: correlate whole batches of one group, write the result and acknowledge, in one step.
-- client-go's order for each event: aggregate, count, spam filter; nothing that the filter holds back is undone.
-- KEYS[1] incoming STREAM   KEYS[2] meta HASH          KEYS[3] index:name ZSET    KEYS[4] index:object ZSET
-- KEYS[5] index:expiry ZSET KEYS[6] index:forget ZSET  KEYS[7] changes STREAM     KEYS[8] suppressed HASH
-- KEYS[9] dead STREAM       KEYS[10] attempts:<group> HASH
-- KEYS[11] index:subject ZSET
-- KEYS[12…] aggregate:…, spam:…, object:… STRING       each once; ARGV counts them from 1
-- ARGV[1] group   ARGV[2] consumer
-- ARGV[3] burst   ARGV[4] qps %.17g   ARGV[5] max_events   ARGV[6] max_interval_ms   ARGV[7] aggregate message prefix
-- ARGV[8] event_ttl_ms   ARGV[9] record_ttl_ms   ARGV[10] report_suppressed 0|1
-- ARGV[11] set_life_ms   ARGV[12] bucket_life_ms  of aggregate:…, spam:… after their last use, by the server's clock
-- ARGV[13] subjects  msgpack [[aggregate key, spam key, aggregate's object key, suppressed's object key, exempt 0|1,
--                    namespace, object name, namespace/kind/name, component\0kind\0type\0reason, suppressed body], …]
-- ARGV[14…] batches  msgpack [id, clock ms, next, [event, …], [[cause, deaths, bytes], …], start]
--           next   '' acknowledges; else the batch is worked one event at a time and this is the next position
--           start  position of the first event in its batch; what lies before the noted next has been recorded
--           event  [subject from 1, object key, local key, name, first µs | '', last µs | '', count, uid, body]
-- Reply   one string a batch: '-' stale (not this consumer's any more: nothing was done), '<' it starts before the
--         noted next (nothing was done: read the note again and go on from there), else a letter an event:
--         c create  k create over its own former self  p patch  r patch, then create (it had expired)
--         n the same, of an event never seen  s held back as spam  m not created, memory is full; upper case: aggregate
-- Writes  all of them; allowed when memory is full, since it drains.

local SIMILAR_LAST = 1
local TOKENS, ACCEPTED, SUPPRESSED, REPORTED, REPORTED_MS = 1, 2, 3, 4, 5
local REPORT_EVERY_MS = 60000
local MESSAGE_IN_BODY = 5

-- What every event needs is read at once; an aggregate or a report of suppression only when it comes to one.
local function read_all(keys, fixed, numbers)
  local values = {}
  for low = 1, #numbers, 1000 do
    local part = {}
    for n = low, math.min(low + 999, #numbers) do part[#part + 1] = keys[fixed + numbers[n]] end
    local got = redis.call('MGET', unpack(part))
    for n = 1, #part do values[numbers[low + n - 1]] = got[n] end
  end
  return values
end

local function needed_keys(subjects, batches)
  local numbers, listed = {}, {}
  local function need(i)
    if not listed[i] then
      listed[i] = true
      numbers[#numbers + 1] = i
    end
  end
  for _, subject in ipairs(subjects) do
    need(subject[1])
    if subject[5] ~= 1 then need(subject[2]) end
  end
  for _, batch in ipairs(batches) do
    for _, event in ipairs(batch[4]) do need(event[2]) end
  end
  return numbers, listed
end

-- Many members in one command: a command costs more than a member, and is one more line of the AOF.
local function call_with(command, key, list)
  for low = 1, #list, 1000 do
    redis.call(command, key, unpack(list, low, math.min(low + 999, #list)))
  end
end

local function owned(incoming, group, consumer, id)
  local pending = redis.call('XPENDING', incoming, group, id, id, 1)
  return pending[1] ~= nil and pending[1][2] == consumer
end

-- client-go's token bucket (golang.org/x/time/rate, AllowN) at whole milliseconds.
local function take_token(bucket, at_ms, burst, qps)
  local tokens = burst
  if bucket[TOKENS] then
    local elapsed_ms = math.max(0, at_ms - bucket[ACCEPTED])
    local seconds = math.floor(elapsed_ms / 1000)
    tokens = math.min(bucket[TOKENS] + (seconds + (elapsed_ms - seconds * 1000) * 1000000 / 1e9) * qps, burst)
  end
  tokens = tokens - 1
  if burst < 1 or tokens < 0 and math.floor(-tokens / qps * 1e9) > 0 then return false end
  bucket[TOKENS], bucket[ACCEPTED] = tokens, at_ms
  return true
end

local function record(keys, args)
  local incoming, meta, index_name, index_object = keys[1], keys[2], keys[3], keys[4]
  local index_expiry, index_forget, changes, suppressed = keys[5], keys[6], keys[7], keys[8]
  local dead, attempts, index_subject = keys[9], keys[10], keys[11]
  local group, consumer = args[1], args[2]
  local burst, qps = number(args[3], 'burst'), number(args[4], 'qps')
  local max_events, max_interval_ms, prefix = number(args[5], 'max_events'), number(args[6], 'max_interval'), args[7]
  local event_ttl_ms, record_ttl_ms = number(args[8], 'event_ttl'), number(args[9], 'record_ttl')
  local reporting = args[10] == '1'
  local set_life_ms, bucket_life_ms = number(args[11], 'set_life'), number(args[12], 'bucket_life')
  local subjects = cmsgpack.unpack(args[13])
  local batches = {}
  for i = 14, #args do batches[#batches + 1] = cmsgpack.unpack(args[i]) end

  -- Read everything.
  check_type(index_name, 'zset')
  check_type(index_object, 'zset')
  check_type(index_expiry, 'zset')
  check_type(index_forget, 'zset')
  check_type(changes, 'stream')
  check_type(suppressed, 'hash')
  check_type(dead, 'stream')
  check_type(attempts, 'hash')
  local us = now_us()
  local now_ms = math.floor(us / 1000)
  local full = memory_full(now_ms)
  local FIXED = 11
  local numbers, was_read = needed_keys(subjects, batches)
  local packed = read_all(keys, FIXED, numbers)
  local names = {}
  local noted = redis.call('EXISTS', attempts) == 1
  for _, batch in ipairs(batches) do
    batch.owned = owned(incoming, group, consumer, batch[1])
    local done = noted and batch[6] and tonumber(redis.call('HGET', attempts, batch[1] .. ':next') or '0')
    batch.behind = done and batch[6] < done
  end
  local rv = last_version(meta, changes, us)
  local changes_bytes = tonumber(redis.call('HGET', meta, 'changes_bytes') or '0')

  -- Sets of similar messages, token buckets, objects; used_objects in order of first use.
  -- What is new is made with room for all its fields: a table that grows is copied at 1, 2, 4 and 8 of them.
  local similars, buckets, objects, used_objects = {}, {}, {}, {}
  local function load_similar(i)
    local s = similars[i]
    if not s then
      s = packed[i] and cmsgpack.unpack(packed[i]) or { nil, nil }
      similars[i] = s
    end
    return s
  end

  local function load_bucket(i)
    local s = buckets[i]
    if not s then
      s = packed[i] and cmsgpack.unpack(packed[i]) or { nil, nil }
      buckets[i] = s
    end
    return s
  end

  local function load_object(i)
    local o = objects[i]
    if not o then
      if not was_read[i] then packed[i], was_read[i] = redis.call('GET', keys[FIXED + i]), true end
      o = packed[i] and cmsgpack.unpack(packed[i]) or {
        nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil,
        existed = false, stored = false, present = false, seen = false, counted = false, dirty = false,
      }
      objects[i] = o
      local stored = o[BODY] ~= nil
      if o[HELD] then
        o[HELD].former, o = o, o[HELD]
        o.former[HELD], objects[i] = nil, o
      end
      o.existed, o.stored, o.present = packed[i] and true, stored, stored and not o.former
      used_objects[#used_objects + 1] = i
    end
    return o
  end

  local function free_name(namespace, name, i)
    local full_name, id = namespace .. '/' .. name, string.sub(keys[FIXED + i], -32)
    local taken = names[full_name]
    if not taken then
      local member = redis.call('ZRANGEBYLEX', index_name, '[' .. full_name .. '\0', '(' .. full_name .. '\1', 'LIMIT', '0', '1')[1]
      taken = member and string.sub(member, -32)
    end
    if taken and taken ~= id then
      name = name .. '.' .. string.sub(id, 1, 8)
      full_name = namespace .. '/' .. name
    end
    names[full_name] = id
    return name
  end

  -- What is stored stays as it is, and is no longer what is remembered.
  local function set_aside(o)
    o.former = { dirty = o.dirty }
    for n = COUNT, BODY do o.former[n] = o[n] end
    o.present, o.dirty = false, false
  end

  local function create(o, id, subject, uid, body, form, message, last)
    if o.former then o.former, o.replaced = nil, o.stored end
    o[STORED_COUNT], o[LAST], o[MESSAGE], o[FORM], o[BODY] = o[COUNT], last, message, form, body
    o[SUBJECT] = o[NAMESPACE] .. string.sub(subject[8], #subject[6] + 1)
    o[UID], o[CREATED], o[ENTRY], o.present, o.dirty = uid, now_ms, id, true, true
  end

  -- A batch that comes late counts, but never moves lastTimestamp or message back.
  local function patch(o, id, message, last)
    o[STORED_COUNT], o.dirty = o[COUNT], true
    if o[ENTRY] ~= id and o[ENTRY] ~= '' and entry_before(id, o[ENTRY]) then return true end
    o[LAST], o[ENTRY] = last, id
    if message then o[MESSAGE] = message end
    return false
  end

  local events, suppressed_n, aggregated_n, not_created, patched, created, late, stale = 0, 0, 0, 0, 0, 0, 0, 0
  local by_subject, used_subjects = { S = {}, A = {}, M = {} }, {}
  local function note(what, subject)
    by_subject[what][subject] = (by_subject[what][subject] or 0) + 1
  end

  local function report_suppressed(bucket, subject, at_ms, id, closing)
    local i = subject[4]
    local o = load_object(i)
    -- The bucket is forgotten long before the report's count is: that goes on, not back.
    local total = math.min(MOST_COUNT, math.max(bucket[SUPPRESSED], (o[COUNT] or 0) + (closing and 0 or 1)))
    bucket[SUPPRESSED] = total
    o[COUNT] = total
    o[ENTRY] = id
    if closing or not o.present or o.dirty or at_ms - bucket[REPORTED_MS] >= REPORT_EVERY_MS then
      if not o.present then
        if not o.existed and not o[NAME] then
          o[FIRST], o[NAMESPACE] = at_ms * 1000, subject[6]
          o[NAME] = free_name(subject[6], subject[7] .. '.' .. hex_ns(at_ms), i)
        end
        create(o, id, subject, '', subject[10], 's', false, at_ms * 1000)
      else
        o[STORED_COUNT], o[LAST], o.dirty = total, at_ms * 1000, true
      end
      bucket[REPORTED], bucket[REPORTED_MS], o.unreported = total, at_ms, false
    else
      o.unreported = true
    end
  end

  local function one(batch, event)
    local id, at_ms = batch[1], batch[2]
    local subject = subjects[event[1]]
    events, used_subjects[event[1]] = events + 1, true

    -- aggregate
    local similar = load_similar(subject[1])
    if not similar[SIMILAR_LAST] or at_ms - similar[SIMILAR_LAST] > max_interval_ms then
      for n = #similar, 2, -1 do similar[n] = nil end
    end
    similar[SIMILAR_LAST] = at_ms
    local known = false
    for n = 2, #similar do
      if similar[n] == event[3] then known = true break end
    end
    local aggregated = (known and #similar - 1 or #similar) >= max_events
    if not known and not aggregated then similar[#similar + 1] = event[3] end

    -- count
    local i = aggregated and subject[3] or event[2]
    local o = load_object(i)
    o.seen = o[COUNT] ~= nil and o[COUNT] ~= 0
    local last, message = event[6], false
    if aggregated then last, message = at_ms * 1000, prefix .. (cmsgpack.unpack(event[9])[MESSAGE_IN_BODY] or '') end
    if o.seen then
      o[COUNT] = o[COUNT] < MOST_COUNT and o[COUNT] + 1 or -MOST_COUNT - 1
    else
      -- It takes the place of one that counts as never seen (count 0), under a new name, as soon as it gets through.
      if o.present then set_aside(o) end
      o[COUNT] = aggregated and 1 or event[7]
      o[FIRST] = aggregated and at_ms * 1000 or event[5]
      o[NAMESPACE] = subject[6]
      o[NAME] = free_name(subject[6], aggregated and subject[7] .. '.' .. hex_ns(at_ms) or event[4], i)
      o[ENTRY] = o[ENTRY] or ''
    end
    o.counted = true

    -- spam filter
    local bucket = subject[5] ~= 1 and load_bucket(subject[2])
    if bucket and not take_token(bucket, at_ms, burst, qps) then
      suppressed_n = suppressed_n + 1
      note('S', subject)
      bucket[SUPPRESSED] = (bucket[SUPPRESSED] or 0) + 1
      bucket[REPORTED] = bucket[REPORTED] or 0
      bucket[REPORTED_MS] = bucket[REPORTED_MS] or 0
      if reporting and (not full or load_object(subject[4]).stored) then report_suppressed(bucket, subject, at_ms, id, false) end
      return aggregated and 'S' or 's'
    end
    if bucket and reporting and (bucket[SUPPRESSED] or 0) > (bucket[REPORTED] or 0) and not full then
      report_suppressed(bucket, subject, at_ms, id, true)
    end
    if aggregated then
      aggregated_n = aggregated_n + 1
      note('A', subject)
    end

    -- decide
    local letter
    if o[COUNT] > 1 then letter = o.present and 'p' or (o.seen and 'r' or 'n')
    else letter = o.seen and 'k' or 'c' end
    if full and not o.present then
      not_created = not_created + 1
      note('M', subject)
      return aggregated and 'M' or 'm'
    end
    if o.present then
      patched = patched + 1
      if patch(o, id, message, last) then late = late + 1 end
    else
      created = created + 1
      -- It had expired, and meanwhile somebody else may have taken the name.
      if o.seen then o[NAME] = free_name(o[NAMESPACE], o[NAME], i) end
      create(o, id, subject, event[8], event[9], aggregated and 'a' or '', message, last)
    end
    return aggregated and string.upper(letter) or letter
  end

  local replies, done, buried = {}, {}, {}
  for b, batch in ipairs(batches) do
    if not batch.owned then
      replies[b] = '-'
      stale = stale + 1
    elseif batch.behind then
      replies[b] = '<'
    else
      local letters = {}
      for e, event in ipairs(batch[4]) do letters[e] = one(batch, event) end
      replies[b] = table.concat(letters)
      for _, burial in ipairs(batch[5]) do buried[#buried + 1] = { batch[1], burial } end
      done[#done + 1] = batch
    end
  end

  -- Write. Acknowledging comes first: nothing may be counted of a batch that stays pending.
  if #done == 0 then return replies end
  local ids = {}
  for _, batch in ipairs(done) do
    if batch[3] == '' then ids[#ids + 1] = batch[1]
    else redis.call('HSET', attempts, batch[1] .. ':next', batch[3]) end
  end
  if #ids > 0 then
    redis.call('XACK', incoming, group, unpack(ids))
    if noted then
      for _, id in ipairs(ids) do redis.call('HDEL', attempts, id, id .. ':next', id .. ':trying') end
    end
  end
  for _, pair in ipairs(buried) do
    local id, burial = pair[1], pair[2]
    local at = tonumber(redis.call('HGET', meta, 'dead_bytes') or '0')
    redis.call('XADD', dead, '*', 'id', id, 'group', group, 'cause', burial[1], 'deaths', burial[2], 'at', integer_text(at), 'b', burial[3])
    redis.call('HSET', meta, 'dead_bytes', integer_text(at + #burial[3]))
    redis.call('HINCRBY', meta, 'buried:' .. burial[1], 1)
  end

  local length = full and redis.call('XLEN', changes)
  local values, due, forget, remember, name_members, object_members = {}, {}, {}, {}, {}, {}
  local expire_at, forget_at = integer_text(now_ms + event_ttl_ms), integer_text(now_ms + record_ttl_ms)
  local report_at = integer_text(now_ms + REPORT_EVERY_MS)
  local function put(list, one, two)
    local n = #list
    list[n + 1], list[n + 2] = one, two
  end
  for _, i in ipairs(used_objects) do
    local o, key = objects[i], keys[FIXED + i]
    local id = string.sub(key, -32)
    local shown = o.former or o
    if o.former then shown[HELD] = { o[COUNT], o[FIRST], o[NAME], o[NAMESPACE], o[ENTRY] } end
    if o.replaced then
      rv = rv + 1
      local former = cmsgpack.unpack(packed[i])
      local name_member, object_member = index_members(former, id)
      former[RV], former[HELD] = rv, nil
      changes_bytes = add_change(changes, rv, changes_bytes, 'D', id, pack_object(former))
      redis.call('ZREM', index_name, name_member)
      redis.call('ZREM', index_object, object_member)
      o.stored = false
    end
    if shown.dirty then
      rv = rv + 1
      shown[RV] = rv
      local bytes = pack_object(shown)
      changes_bytes = add_change(changes, rv, changes_bytes, o.stored and 'M' or 'A', id, bytes)
      put(values, key, bytes)
      if not o.stored then
        local name_member, object_member = index_members(shown, id)
        put(name_members, '0', name_member)
        put(object_members, '0', object_member)
        if o.existed then put(remember, id) end
      end
      put(due, o.unreported and report_at or expire_at, id)
    elseif o.counted or o.unreported then
      if o.stored then
        put(values, key, pack_object(shown))
        if o.unreported then put(due, report_at, id) end
      elseif o.existed or not full then
        put(values, key, pack_counts(o))
        put(forget, forget_at, id)
      end
    end
  end
  for low = 1, #values, 1000 do redis.call('MSET', unpack(values, low, math.min(low + 999, #values))) end
  call_with('ZADD', index_name, name_members)
  call_with('ZADD', index_object, object_members)
  call_with('ZADD', index_expiry, due)
  call_with('ZADD', index_forget, forget)
  call_with('ZREM', index_forget, remember)
  local used, used_at = {}, integer_text(now_ms)
  for n, subject in ipairs(subjects) do
    if used_subjects[n] and (packed[subject[1]] or not full) then
      put(used, used_at, string.sub(keys[FIXED + subject[1]], -32) .. string.sub(keys[FIXED + subject[2]], -32))
    end
  end
  call_with('ZADD', index_subject, used)
  local function keep_records(records, life_ms)
    for i, r in pairs(records) do
      if packed[i] or not full then redis.call('SET', keys[FIXED + i], cmsgpack.pack(r), 'PX', life_ms) end
    end
  end
  keep_records(similars, integer_text(set_life_ms))
  keep_records(buckets, integer_text(bucket_life_ms))
  keep_version(meta, rv)
  redis.call('HSET', meta, 'changes_bytes', integer_text(changes_bytes))
  if length then redis.call('XTRIM', changes, 'MAXLEN', length) end
  local tally = {
    events = events, suppressed = suppressed_n, aggregated = aggregated_n, not_created = not_created,
    patched = patched, created = created, late = late, stale = stale,
  }
  for what, n in pairs(tally) do
    if n > 0 then redis.call('HINCRBY', meta, what, n) end
  end
  for what, subjects_of in pairs(by_subject) do
    for subject, n in pairs(subjects_of) do count_by_subject(suppressed, what, subject[9], n) end
  end
  return replies
end

redis.register_function{ function_name = 'eb1_record', callback = record, flags = { 'allow-oom' } }
