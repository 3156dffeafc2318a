-- correlate_and_store: stores recorded events. It correlates whole batches of one group, writes the result and acknowledges,
-- in one step. correlation.lua decides; this file reads everything before and writes everything after. A corrupt string
-- counts as missing (corrupt.lua). If it is an event, the caller is asked once for its index members before: see the reply
-- 'members'.
-- Call    Functions.correlate_and_store, Functions.begin_correlate_and_store in functions.py
-- KEYS[1] incoming STREAM   KEYS[2] meta HASH          KEYS[3] index:name ZSET     KEYS[4] index:object ZSET
-- KEYS[5] index:expiry ZSET KEYS[6] index:forget ZSET  KEYS[7] index:refresh ZSET  KEYS[8] changes:<kind> STREAM
-- KEYS[9] suppressed HASH   KEYS[10] dead STREAM       KEYS[11] attempts:<group> HASH
-- KEYS[12] version:<kind> STRING   KEYS[13] note:<of> STRING   KEYS[14] spoiled HASH
-- KEYS[15…] corr:…, object:…, occurrences:… STRING|HASH      each once, counted from 1 in each group: states of sources,
--           events, other objects that may be written (an aggregate, a report of suppression), occurrences.
--           The object:… of a series is none of them: only its set names it
-- ARGV[1] group   ARGV[2] consumer
-- ARGV[3] burst   ARGV[4] qps %.17g   ARGV[5] max_events   ARGV[6] max_interval_ms   ARGV[7] aggregate message prefix
-- ARGV[8] event_ttl_ms   ARGV[9] record_ttl_ms   ARGV[10] report_suppressed 0|1
-- ARGV[11] source_life_ms  of corr:… after its last use, by the clock of the server   ARGV[12] refresh_ms
-- ARGV[13] occurrences_ms  life of the occurrences of a minute, 0 counts none
-- ARGV[14] report_message   ARGV[15] report_type  of a report of suppression; '' is that of the suppressed event
-- ARGV[16] bus       id of the bus that the worker has opened, '' is not compared
-- ARGV[17] subjects  msgpack [sources, events, others: the number of keys, [local key of each event key], [subject, …]]
--           subject  nine values in one array: source, tag of its set, aggregate, report, exempt 0|1, namespace, object name,
--                    /kind/name, component\0kind\0type\0reason. exempt 2: its events form a series
-- ARGV[18] members   msgpack {id: [member of index:name | '', member of index:object | '']} of the corrupt events that an
--           earlier reply has named; '' in the first call
-- ARGV[19] bodies    number of bodies that follow, each once
-- ARGV[20…] the bodies, then
--           batches  msgpack [id, clock ms, next, [[cause, deaths, bytes], …], start, occurrences, [event, …]]
--           next   '': acknowledge the batch afterwards; else only one event is given, and this is noted as the next
-- position
--           start  position of the first event in its batch; events before the noted next position are stored already
--           event  eight values in one array: subject, event key (0: of a series), body, name, first µs | '',
--                  last µs | '', count, uid
--           run    the same values of several events with the same subject, key and body, and a count of 1: those of the
--                  first; its last µs are those of all, which do not decrease, in eight bytes each, big-endian
-- Reply   one string a batch: '-' another worker has taken the batch over: nothing was done, '<' it starts before the noted
--         next position (nothing was done: read the note again and continue there), else a letter an event:
--         c create  k create, replacing its former self  p patch  r patch, then create (it had expired)
--         n patch, then create, of an event never seen  s suppressed as spam  m not created, memory is full
--         u counted in a series, not written
--         upper case: an aggregate
--         Or 'unfold': nothing was done. The count of an event would leave 1 to 2^31-1 in a run: call again without runs.
--         Or 'members': nothing was done. The named keys have corrupt events: find their members in the indexes, in pages,
--         and call again with them.
-- Writes  all of them; allowed when memory is full, since it drains.

local FIXED_KEYS = 14

-- Returns the field of occurrences: namespace, kind, type, reason and component. *known* caches the fields by namespace and
-- dimensions, since most subjects of a call share them.
local function occurrence_field(known, namespace, dimensions)
  local fields = known[namespace]
  if not fields then
    fields = {}
    known[namespace] = fields
  end
  local field = fields[dimensions]
  if not field then
    local separator = find(dimensions, '\0', 1, true)
    field = namespace .. sub(dimensions, separator) .. '\0' .. sub(dimensions, 1, separator - 1)
    fields[dimensions] = field
  end
  return field
end

-- Decides every event of the batches that this consumer owns. Returns replies, batches done, burials, occurrences by key, events;
-- nil: a run must be unfolded.
local function decide_batches(batches, subjects, decide, decide_run)
  local replies, done, buried, occurrences, decided, known = {}, {}, {}, {}, 0, {}
  for b, batch in ipairs(batches) do
    if not batch.owned then replies[b] = '-'
    elseif batch.is_outdated then replies[b] = '<'
    else
      local letters, minute, counts, events, at = {}, batch[6], nil, batch[7], 0
      local entry, at_ms = batch[1], batch[2]
      if minute > 0 then
        counts = occurrences[minute] or {}
        occurrences[minute] = counts
      end
      for e = 1, #events, EVENT_FIELDS do
        at = at + 1
        local lasts, times = events[e + EVENT_LAST - 1], 1
        if type(lasts) == 'string' and #lasts > 0 then
          times = #lasts / TIME_BYTES
          letters[at] = decide_run(entry, at_ms, unpack(events, e, e + EVENT_FIELDS - 1))
          if not letters[at] then return nil end
        else
          letters[at] = decide(entry, at_ms, unpack(events, e, e + EVENT_FIELDS - 1))
        end
        if counts then
          local n = events[e]
          counts[n] = (counts[n] or 0) + times
        end
        decided = decided + times
      end
      replies[b] = table.concat(letters)
      for _, burial in ipairs(batch[4]) do buried[#buried + 1] = { batch[1], burial } end
      done[#done + 1] = batch
    end
  end
  for minute, counts in pairs(occurrences) do
    local by_field = {}
    for n, count in pairs(counts) do
      local s = (n - 1) * SUBJECT_FIELDS
      local field = occurrence_field(known, subjects[s + SUBJECT_NAMESPACE], subjects[s + DIMENSIONS])
      by_field[field] = (by_field[field] or 0) + count
    end
    occurrences[minute] = by_field
  end
  return replies, done, buried, occurrences, decided
end

-- Returns the corrupt events: {id, member of index:name, member of index:object}, '' without one. Their strings do not have
-- their names, and a search would be long, so the caller gives the *members* by id; nil: one is not given.
local function corrupt_events(c, members)
  local events = {}
  for _, key in ipairs(corrupt.keys) do
    if prefix_of(key) == c.prefix then -- not the state of a source: that is in neither index
      local id = id_of(key)
      local pair = members[id]
      if not pair then return nil end
      events[#events + 1] = { id, pair[1], pair[2] }
    end
  end
  return events
end

-- Removes corrupt events from the indexes, with a DELETED change that has the few fields known from the index. The same
-- call may store the event again.
local function remove_corrupt(c, steps, given, events)
  for _, event in ipairs(events) do
    local id, name_member, object_member = unpack(event)
    if name_member ~= '' then
      if object_member == '' then object_member = '//\0' .. id end
      local namespace, name = string.match(name_member, '^([^/]*)/(.*)%z')
      local kind, about = string.match(object_member, '^[^/]*/([^/]*)/(.*)%z')
      local o = { 0, '', name, namespace, '', 0, '', c.last + 1, given.now_ms, '', false, '' }
      o[SUBJECT] = string.sub(object_member, 1, -ID_CHARS - 2)
      o[BODY] = cmsgpack.pack({ name, namespace, { kind, namespace, about }, '', '', '', { '', '' } })
      for n = BODY + 1, FIELDS do o[n] = false end
      add_change(c, 'D', id, pack_event(o), name_member, object_member)
    end
    step(steps, 'ZREM', given.index_expiry, id)
    step(steps, 'ZREM', given.index_forget, id)
  end
end

local function step_acknowledge(steps, incoming, attempts, group, done, noted)
  local ids = {}
  for _, batch in ipairs(done) do
    if batch[3] == '' then ids[#ids + 1] = batch[1]
    else step(steps, 'HSET', attempts, batch[1] .. ':next', batch[3]) end
  end
  step_each(steps, ids, 'XACK', incoming, group)
  if noted then
    for _, id in ipairs(ids) do step(steps, 'HDEL', attempts, id, id .. ':next', id .. ':trying') end
  end
end

-- Returns when `refresh` must look at a series again, and notes when its count must be written.
local function series_due(o)
  local last_ms = series_last_ms(o)
  o[WRITE_DUE] = o[WRITE_DUE] or series_refresh_ms(last_ms)
  return math.min(o[WRITE_DUE], series_end_ms(last_ms))
end

-- Puts the new state of the objects into *strings*, *c* and *indexes*.
local function write_objects(state, keys, places, c, strings, indexes, given)
  local objects, used, events_at = state.objects, state.used_objects, places.events
  local function put(list, one, two)
    local n = #list
    list[n + 1], list[n + 2] = one, two
  end
  for n = 1, #used do
    local i = used[n]
    local r, key = objects[i], keys[events_at + i]
    local id = id_of(key)
    local shown, dirty, source = r.o, r.dirty, id_of(keys[places.sources + r.source])
    if r.former then
      shown, dirty = r.former.o, r.former.dirty
      shown[HELD] = { r.o[COUNT], r.o[FIRST], r.o[NAME], r.o[NAMESPACE], r.o[ENTRY] }
    end
    if r.replaced then
      local former = unpack_event(state.packed[events_at + i])
      local name_member, object_member = index_members(former, id)
      former[RV], former[HELD], former[WRITTEN] = c.last + 1, false, false
      add_change(c, 'D', id, pack_event(former), name_member, object_member)
      r.stored = false
    end
    shown[SOURCE] = source
    if dirty then
      shown[RV] = c.last + 1
      if r.stored then
        shown[WRITTEN], shown[DUE], shown[CHANGED] = false, false, given.now_ms
        if shown[WRITE_DUE] then shown[WRITE_DUE] = false end
      end
      if shown[FORM] == 'e' and shown[COUNT] > 1 then
        shown[DUE] = series_due(shown)
        put(indexes.refresh, integer_text(shown[DUE]), id)
      end
      local packed, at = pack_event(shown), #strings
      strings[at + 1], strings[at + 2] = key, packed
      if r.stored then add_change(c, 'M', id, packed)
      else
        add_change(c, 'A', id, packed, index_members(shown, id, r.about))
        if r.existed then put(indexes.remember, id) end
      end
    elseif r.counted or r.refresh then
      if r.stored then
        if r.refresh and not r.former then
          local due = math.max(given.now_ms, (shown[CHANGED] or shown[CREATED] or 0) + given.refresh_ms)
          if shown[FORM] == 'e' then due = math.min(due, series_due(shown)) end
          if shown[FORM] == 's' and not shown[WRITE_DUE] then
            shown[WRITE_DUE] = (shown[CHANGED] or shown[CREATED] or 0) + REPORT_EVERY_MS
          end
          -- Also if it was due a minute ago: then it is missing in the index.
          if not shown[DUE] or shown[DUE] > due or shown[DUE] < given.now_ms - 60000 then
            shown[DUE] = due
            put(indexes.refresh, integer_text(due), id)
          end
        end
        put(strings, key, pack_event(shown))
      elseif r.existed or not given.full then
        r.o[SOURCE] = source
        put(strings, key, pack_counts(r.o))
        put(indexes.forget, given.forget_at, id)
      end
    end
  end
end

-- Puts the strings of the states of sources into *strings*, and their lives into *steps*. Returns the keys of these.
local function write_sources(state, keys, places, strings, steps, given)
  local packed, full, before, packed_numbers, last = state.packed, given.full, places.sources, {}, #strings
  local ids, written, place = {}, {}, 0
  for n in pairs(state.used_sources) do
    if not full or packed[before + n] then
      local key = keys[before + n]
      place = place + 1
      ids[place], written[place] = id_of(key), key
      strings[last + 1], strings[last + 2] = key, pack_source(packed_numbers, state.sources[n])
      last = last + 2
    end
  end
  if place > 0 then
    step(steps, 'LIVES', prefix_of(written[1]), given.source_life_ms, ids)
  end
  return written
end

-- Returns the place before each group of keys, and the place of the last key that every event needs.
local function places_of(counts)
  local sources = FIXED_KEYS
  local events = sources + counts[1]
  return { sources = sources, events = events, events_end = events + counts[2], minutes = events + counts[2] + counts[3] }
end

-- Unpacks the arguments. Returns the places of the keys, local keys, subjects, bodies, batches.
local function unpack_call(args)
  local about, bodies, batches = cmsgpack.unpack(args[17]), {}, {}
  local last_body = 19 + number(args[19], 'bodies')
  for i = 20, last_body do bodies[i - 19] = args[i] end
  for i = last_body + 1, #args do batches[#batches + 1] = cmsgpack.unpack(args[i]) end
  return places_of(about), about[4], about[5], bodies, batches
end

local function correlate_and_store(keys, args)
  local incoming, meta, index_name, index_object = keys[1], keys[2], keys[3], keys[4]
  local index_expiry, index_forget, index_refresh = keys[5], keys[6], keys[7]
  local changes, suppressed, dead, attempts, version, note = keys[8], keys[9], keys[10], keys[11], keys[12], keys[13]
  local group, consumer = args[1], args[2]
  local rules = {
    burst = number(args[3], 'burst'), qps = number(args[4], 'qps'), max_events = number(args[5], 'max_events'),
    max_interval_ms = number(args[6], 'max_interval'), prefix = args[7], reporting = args[10] == '1',
    report_message = args[14], report_type = args[15],
  }
  local event_ttl_ms, record_ttl_ms = number(args[8], 'event_ttl'), number(args[9], 'record_ttl')
  local places, locals, subjects, bodies, batches = unpack_call(args)

  -- Read.
  local head = redis.call('MGET', note, version)
  if finish(note, head[1]) then head = redis.call('MGET', note, version) end
  local us = now_us()
  local now_ms = math.floor(us / 1000)
  local full = memory_full(now_ms)
  local noted = redis.call('EXISTS', attempts, note) > 0 -- mostly there is neither
  if noted then
    if not head[1] and redis.call('EXISTS', note) == 1 then refuse(note, 'a note') end
    noted = redis.call('EXISTS', attempts) == 1
  end
  local stale = 0
  for _, batch in ipairs(batches) do
    batch.owned = owned(incoming, group, consumer, batch[1])
    if not batch.owned then stale = stale + 1 end
    local next_noted = noted and tonumber(ask('HGET', attempts, batch[1] .. ':next') or '0')
    batch.is_outdated = next_noted and batch[5] < next_noted
  end
  local state = new_state(keys, places, index_name)
  state.read_all(subjects, rules.max_events, batches[1] and batches[1][2] or 0)

  -- Decide.
  local decide, decide_run, tally, by_subject = new_decision({
    subjects = subjects, locals = locals, bodies = bodies, rules = rules, now_ms = now_ms, full = full,
    similar = state.similar, bucket = state.bucket, object = state.object, free_name = state.free_name,
    source_id = state.source_id, number_of = state.number_of,
  })
  local replies, done, buried, occurrences, decided = decide_batches(batches, subjects, decide, decide_run)
  if not replies then
    corrupt.counted = #corrupt.keys -- the repeated call counts them
    return 'unfold'
  end
  if #done == 0 then return replies end

  -- Write.
  local given = {
    now_ms = now_ms, full = full, refresh_ms = number(args[12], 'refresh'),
    expire_at = integer_text(now_ms + event_ttl_ms), forget_at = integer_text(now_ms + record_ttl_ms),
    source_life_ms = integer_text(number(args[11], 'source_life')),
    index_expiry = index_expiry, index_forget = index_forget,
  }
  local rv, bytes = last_version(version, head[2], changes, us)
  local prefix = #subjects > 0 and prefix_of(keys[places.events + 1]) or ''
  local c = new_changes(changes, version, rv, bytes, prefix, index_name, index_object)
  local strings, steps, indexes = {}, {}, { forget = {}, remember = {}, refresh = {} }
  step_acknowledge(steps, incoming, attempts, group, done, noted)
  if c.prefix ~= '' and #corrupt.keys > 0 then
    local events = corrupt_events(c, args[18] ~= '' and cmsgpack.unpack(args[18]) or {})
    if not events then
      corrupt.counted = #corrupt.keys -- the repeated call counts them
      return 'members'
    end
    remove_corrupt(c, steps, given, events)
  end
  write_objects(state, keys, places, c, strings, indexes, given)
  step(steps, 'DUE', index_expiry, given.expire_at)
  step_each(steps, indexes.forget, 'ZADD', index_forget)
  step_each(steps, indexes.remember, 'ZREM', index_forget)
  step_each(steps, indexes.refresh, 'ZADD', index_refresh)
  c.source_keys = write_sources(state, keys, places, strings, steps, given)
  tally.stale, tally.events = stale, decided
  local occurrences_ms = integer_text(number(args[13], 'occurrences'))
  for i, counts in pairs(occurrences) do
    step_minute(steps, keys[places.minutes + i], counts, occurrences_ms, full)
  end
  if #buried > 0 then
    local burials = new_burials(dead, now_ms)
    for _, pair in ipairs(buried) do
      local burial = pair[2]
      step_burial(steps, burials, group, pair[1], burial[1], burial[2], burial[3])
    end
    for field, n in pairs(burials.raised) do tally[field] = n end
  end
  step_raised(steps, meta, tally, args[16])
  step_by_subject(steps, suppressed, by_subject)
  if full then step_within(steps, c, 0, true) end -- else `trim` does
  commit(note, strings, c, steps)
  return replies
end

register('correlate_and_store', naming_corrupt(correlate_and_store, 14), { 'allow-oom' })
