-- Decides each event by the rules, in the order of client-go: aggregate, count, spam filter. If the filter holds an event
-- back, it stays counted. Events of a series are only counted. This file does not read or write keys:
-- correlate_and_store.lua does.

-- The state of a source and object is one array: tokens, time of the last accepted event, numbers of suppressed and reported
-- events, time of the report (false: none yet); then a tag and a set of similar messages for each type and reason.
local TOKENS, ACCEPTED, SUPPRESSED, REPORTED, REPORTED_MS = 1, 2, 3, 4, 5
local FIRST_TAG = 6
-- Beyond this number, a new set replaces the one that was used least recently.
local MOST_SETS = 32

-- A set has the time of its last event, then digests of its messages.
local SIMILAR_LAST = 1
-- The set of a series has instead of these the id of the event that counts them.
local SERIES_ID = 2
local REPORT_EVERY_MS = 60000

-- A subject is nine values in one array for all subjects, an event eight: a table each would cost more than the decision.
local SUBJECT_FIELDS, EVENT_FIELDS = 9, 8
-- The last time of an event; of a run, the last times of its events.
local EVENT_LAST, TIME_BYTES = 6, 8
local STATE, SET, AGGREGATE, REPORT, EXEMPT, SUBJECT_NAMESPACE, OBJECT_NAME, ABOUT, DIMENSIONS = 1, 2, 3, 4, 5, 6, 7, 8, 9

-- EXEMPT of a subject with events that form a series.
local SERIES = 2

local NIL, ONE = '\192', '\1'

local function new_source()
  return { false, false, false, false, false, nil, nil }
end

local function is_source(t)
  if type(t) ~= 'table' or #t < REPORTED_MS or #t % 2 == 0 then return false end
  for n = TOKENS, REPORTED_MS do
    if t[n] and type(t[n]) ~= 'number' then return false end
  end
  for n = FIRST_TAG, #t, 2 do
    local set = t[n + 1]
    if type(t[n]) ~= 'string' or type(set) ~= 'table' or type(set[SIMILAR_LAST]) ~= 'number'
      or set[SERIES_ID] and type(set[SERIES_ID]) ~= 'string' then return false end
  end
  return not t[TOKENS] == not t[ACCEPTED] and not t[REPORTED] == not t[REPORTED_MS]
end

-- Returns the set with *tag*; nil: there is none.
local function known_set(t, tag)
  for n = FIRST_TAG, #t, 2 do
    if t[n] == tag then return t[n + 1] end
  end
end

-- Returns the set with *tag*, a new one if there is none.
local function set_of(t, tag)
  local set = known_set(t, tag)
  if set then return set end
  local place = #t + 1
  if place > REPORTED_MS + 2 * MOST_SETS then
    place = FIRST_TAG
    for n = FIRST_TAG, #t, 2 do
      if t[n + 1][SIMILAR_LAST] < t[place + 1][SIMILAR_LAST] then place = n end
    end
  end
  set = { nil, nil }
  t[place], t[place + 1] = tag, set
  return set
end

-- The token bucket of client-go (golang.org/x/time/rate, AllowN), in whole milliseconds.
local function pass_filter(bucket, at_ms, burst, qps)
  local tokens = burst
  if bucket[TOKENS] then
    local elapsed_ms = at_ms - bucket[ACCEPTED]
    if elapsed_ms < 0 then elapsed_ms = 0 end
    local over_ms = elapsed_ms % 1000
    tokens = bucket[TOKENS] + ((elapsed_ms - over_ms) / 1000 + over_ms * 1000000 / 1e9) * qps
    if tokens > burst then tokens = burst end
  end
  tokens = tokens - 1
  if burst < 1 or tokens < 0 and -tokens / qps * 1e9 >= 1 then return false end
  bucket[TOKENS], bucket[ACCEPTED] = tokens, at_ms
  return true
end

-- Returns the body of a report of suppression: with the object, type and source of the suppressed event.
local function report_body(namespace, body, rules)
  local of = open_body(body)
  local reference, source = {}, of[BODY_SOURCE] or { '', '' }
  for n = 1, math.min(6, #(of[BODY_REFERENCE] or {})) do reference[n] = of[BODY_REFERENCE][n] end
  local parts = {
    pack(''), pack(namespace), #reference > 0 and pack(reference) or '\144', pack('EventsSuppressed'),
    pack(rules.report_message), pack(rules.report_type ~= '' and rules.report_type or of[BODY_TYPE] or 'Normal'), pack(source),
  }
  local component, instance = of[BODY_REPORTER] or source[1], of[BODY_REPORTER + 1] or source[2]
  if component == source[1] and instance == source[2] then return '\151' .. table.concat(parts) end
  return '\156' .. table.concat(parts) .. NIL .. NIL .. ONE .. pack(component) .. pack(instance)
end

local ID_LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._'

-- Returns the digest of *text* as an id.
local function digest_id(text)
  local id = string.gsub(sub(redis.sha1hex(text), 1, 2 * ID_CHARS), '%x%x', function(byte)
    local n = tonumber(byte, 16) % 64 + 1
    return sub(ID_LETTERS, n, n)
  end)
  return id
end

-- Packs a state as cmsgpack does. Most states of a call have one message, and the same numbers, which *packed_numbers* caches.
local function pack_source(packed_numbers, t)
  local set, tag = t[FIRST_TAG + 1], t[FIRST_TAG]
  if #t ~= FIRST_TAG + 1 or t[SUPPRESSED] or #set ~= 2 or #tag ~= 8 or #set[2] ~= 8 then return pack(t) end
  local function packed_of(n)
    local packed = packed_numbers[n]
    if not packed then
      packed = pack(n)
      packed_numbers[n] = packed
    end
    return packed
  end
  return '\151' .. packed_of(t[TOKENS]) .. packed_of(t[ACCEPTED]) .. '\194\194\194\168' .. tag
    .. '\146' .. packed_of(set[SIMILAR_LAST]) .. '\168' .. set[2]
end

-- Returns the state of a source and object, and whether the value is corrupt.
local function unpack_source(packed)
  if not packed then return nil, false end
  local ok, t = pcall(cmsgpack.unpack, packed)
  if not ok or not is_source(t) then return nil, true end
  return t, false
end

-- Returns the nanoseconds of *ms* in lower-case hex: the name suffix of client-go. The product exceeds 2^53, so it is computed
-- in halves.
local function hex_ns(ms)
  if ms < 0 then return '-' .. hex_ns(-ms) end
  local low = (ms % 65536) * 1000000
  local high = math.floor(ms / 65536) * 1000000 + math.floor(low / 65536)
  return string.format('%x%04x', high, low % 65536)
end

-- Returns the state of an object in one call: *o* has the current count. existed: there was a value; stored: it is an event;
-- present: it is the event that is counted; former: the stored event, if it is another one; replaced: *o* takes its place;
-- about: /kind/name of a new one; source: the number of the state of its source. The table is created with eight fields; only the rare fields former and replaced are added.
local function new_object(o, existed)
  local stored = o and o[BODY] ~= nil or false
  local r = {
    o = o or { false, false, false, false, false }, existed = existed, stored = stored, present = stored,
    dirty = false, counted = false, refresh = false, about = false, source = 0,
  }
  if stored and o[HELD] then
    r.former, r.o, r.present, o[HELD] = { o = o, dirty = false }, o[HELD], false, false
  end
  return r
end

-- Creates the table with all its fields: a table that grows is copied several times.
local function create(r, entry, about, uid, body, form, message, last, now_ms)
  local o = r.o
  if r.former then r.former, r.replaced = nil, r.stored end
  local count, first, namespace = o[COUNT], o[FIRST], o[NAMESPACE]
  -- The lower case of Lua is only that of ASCII.
  local subject = find(about, '[\128-\255]') and namespace .. about or false
  r.o = {
    count, first, o[NAME], namespace, entry, count, last ~= first and last, false, now_ms, uid, message, form, subject,
    body, false, false, false, false, false, false, false, false,
  }
  r.present, r.dirty, r.about = true, true, about
end

-- A late batch is counted, but does not move lastTimestamp or message back.
local function patch(r, entry, message, last)
  local o = r.o
  o[STORED_COUNT], o[ONCE], r.dirty = o[COUNT], false, true
  if o[ENTRY] ~= entry and o[ENTRY] ~= '' and entry_before(entry, o[ENTRY]) then return true end
  o[LAST], o[ENTRY], o[SEEN] = last, entry, false
  if message then o[MESSAGE] = message end
  return false
end

-- The event is counted and not written; readers get its count at the next refresh. *last*: µs or ''.
local function count_unwritten(r, last)
  local o = r.o
  o[ONCE], r.refresh = false, true
  if last ~= '' and last > (o[SEEN] or tonumber(o[LAST] or o[FIRST]) or 0) then o[SEEN] = last end
end

-- Keeps the stored event, although another event is counted from now on.
local function set_aside(r)
  local o = { r.o[COUNT], r.o[FIRST], r.o[NAME], r.o[NAMESPACE], r.o[ENTRY] }
  r.former = { o = r.o, dirty = r.dirty }
  r.o, r.present, r.dirty = o, false, false
end

-- *given*: subjects, locals, bodies, rules (burst, qps, max_events, max_interval_ms, prefix, reporting, report_message,
-- report_type), now_ms, full (no memory), and the readers of the state under key i: bucket(i), similar(i, tag), object(i),
-- free_name(namespace, name, i), source_id(i); and number_of(id, is_new), the i of an object that is not among KEYS.
-- Returns a function that decides one event, another one that decides a run, and their counters.
local function new_decision(given)
  local subjects, rules, now_ms, full = given.subjects, given.rules, given.now_ms, given.full
  local locals, bodies = given.locals, given.bodies
  local similar_of, bucket_of, object_of, free_name = given.similar, given.bucket, given.object, given.free_name
  local max_events, max_interval_ms, burst, qps = rules.max_events, rules.max_interval_ms, rules.burst, rules.qps
  local report_at = #locals -- reports and aggregates are numbered after the events
  local tally = {
    suppressed = 0, aggregated = 0, not_created = 0, patched = 0, created = 0, late = 0, in_series = 0,
  }
  local by_subject = { S = {}, A = {}, M = {} }

  local function note(letter, s, times)
    local counts, dimensions = by_subject[letter], subjects[s + DIMENSIONS]
    counts[dimensions] = (counts[dimensions] or 0) + times
  end

  -- *times*: events suppressed since the last call; 0: an event has passed.
  local function report_suppressed(bucket, s, at_ms, entry, body, times)
    local r = object_of(report_at + subjects[s + REPORT])
    local o = r.o
    r.source = subjects[s + STATE]
    -- The bucket is forgotten long before the count of the report: the count never decreases.
    local total, counted = bucket[SUPPRESSED], (o[COUNT] or 0) + times
    if counted > total then total = counted end
    if total > MOST_COUNT then total = MOST_COUNT end
    bucket[SUPPRESSED], o[COUNT], o[ENTRY] = total, total, entry
    if times == 0 or not r.present or r.dirty or at_ms - bucket[REPORTED_MS] >= REPORT_EVERY_MS then
      if r.present then
        o[STORED_COUNT], o[LAST], o[SEEN], o[ONCE], r.dirty = total, at_ms * 1000, false, false, true
      else
        local namespace = subjects[s + SUBJECT_NAMESPACE]
        if not o[NAME] then
          o[FIRST], o[NAMESPACE] = at_ms * 1000, namespace
          o[NAME] = free_name(
            namespace, subjects[s + OBJECT_NAME] .. '.' .. hex_ns(at_ms), report_at + subjects[s + REPORT]
          )
        end
        create(r, entry, subjects[s + ABOUT], '', report_body(namespace, body, rules), 's', false, at_ms * 1000, now_ms)
      end
      bucket[REPORTED], bucket[REPORTED_MS] = total, at_ms
    else
      count_unwritten(r, at_ms * 1000)
    end
  end

  -- Returns whether the event joins an aggregate: the number of distinct messages is at its limit.
  local function aggregate(s, at_ms, message)
    local similar = similar_of(subjects[s + STATE], subjects[s + SET])
    local last, length, known = similar[SIMILAR_LAST], #similar, false
    similar[SIMILAR_LAST] = at_ms
    if not last then length = 1
    elseif at_ms - last > max_interval_ms then
      for n = length, 2, -1 do similar[n] = nil end
      length = 1
    end
    for n = 2, length do
      if similar[n] == message then known = true break end
    end
    local aggregated = (known and length - 1 or length) >= max_events
    if not known and not aggregated then similar[length + 1] = message end
    return aggregated
  end

  local function count(s, at_ms, aggregated, key, name, first, times)
    local i = aggregated and report_at + subjects[s + AGGREGATE] or key
    local r = object_of(i)
    local before = r.o[COUNT]
    r.source = subjects[s + STATE]
    local seen = before and before ~= 0
    if seen then
      r.o[COUNT] = before < MOST_COUNT and before + 1 or -MOST_COUNT - 1
    else
      -- It replaces an event with count 0 (never seen), under a new name, as soon as it passes the filter.
      if r.present then set_aside(r) end
      local o, namespace = r.o, subjects[s + SUBJECT_NAMESPACE]
      if aggregated then times, first, name = 1, at_ms * 1000, subjects[s + OBJECT_NAME] .. '.' .. hex_ns(at_ms) end
      o[COUNT], o[FIRST], o[NAMESPACE] = times, first, namespace
      o[NAME] = free_name(namespace, name, i)
      o[ENTRY] = o[ENTRY] or ''
    end
    r.counted = true
    return r, i, seen
  end

  local function held_back(bucket, s, at_ms, entry, body, times)
    tally.suppressed = tally.suppressed + times
    note('S', s, times)
    bucket[SUPPRESSED] = (bucket[SUPPRESSED] or 0) + times
    if not bucket[REPORTED] then bucket[REPORTED], bucket[REPORTED_MS] = 0, 0 end
    if rules.reporting and (not full or object_of(report_at + subjects[s + REPORT]).stored) then
      report_suppressed(bucket, s, at_ms, entry, body, times)
    end
  end

  -- A series is one event. Its first two events are written, the others only counted: `refresh` writes the count.
  local function decide_in_series(entry, at_ms, s, body, name, at_us, uid)
    local set = similar_of(subjects[s + STATE], subjects[s + SET])
    local last_ms, id = set[SIMILAR_LAST], set[SERIES_ID]
    local is_new = not id or series_ended(last_ms, at_ms)
    if is_new then
      id = digest_id(given.source_id(subjects[s + STATE]) .. pack(uid))
      last_ms, set[SERIES_ID] = at_ms, id
    end
    set[SIMILAR_LAST] = math.max(last_ms, at_ms)

    local i, namespace = given.number_of(id, is_new), subjects[s + SUBJECT_NAMESPACE]
    local r = object_of(i)
    local o, before = r.o, r.o[COUNT] or 0
    r.source = subjects[s + STATE]
    if before == 0 then
      o[FIRST], o[NAME], o[NAMESPACE], o[ENTRY] = at_us, free_name(namespace, name, i), namespace, ''
    end
    o[COUNT], r.counted = math.min(before + 1, MOST_COUNT), true
    if r.present then o[WRITE_DUE], o[SERIES_LAST] = o[WRITE_DUE] or false, set[SIMILAR_LAST] end
    if r.present and before > 1 then
      count_unwritten(r, at_us)
      tally.in_series = tally.in_series + 1
      return 'u'
    end
    if r.present then
      tally.patched = tally.patched + 1
      if patch(r, entry, false, at_us) then tally.late = tally.late + 1 end
      return 'p'
    end
    if full then
      tally.not_created = tally.not_created + 1
      note('M', s, 1)
      return 'm'
    end
    tally.created = tally.created + 1
    if before > 0 then o[NAME] = free_name(o[NAMESPACE], o[NAME], i) end
    create(r, entry, subjects[s + ABOUT], uid, body, 'e', false, at_us, now_ms)
    r.o[WRITE_DUE], r.o[SERIES_LAST] = false, set[SIMILAR_LAST]
    return before > 0 and 'r' or 'c'
  end

  -- After *at_ms*: the eight values of an event.
  local function decide(entry, at_ms, n, key, n_body, name, first, last, times, uid)
    local s = (n - 1) * SUBJECT_FIELDS
    local exempt = subjects[s + EXEMPT]
    if exempt == SERIES then return decide_in_series(entry, at_ms, s, bodies[n_body], name, first, uid) end
    local aggregated = aggregate(s, at_ms, locals[key])
    local r, i, seen = count(s, at_ms, aggregated, key, name, first, times)
    if aggregated then last = at_ms * 1000 end
    local body = bodies[n_body]

    local bucket = exempt ~= 1 and bucket_of(subjects[s + STATE])
    if bucket and not pass_filter(bucket, at_ms, burst, qps) then
      if r.present then count_unwritten(r, last) end
      held_back(bucket, s, at_ms, entry, body, 1)
      return aggregated and 'S' or 's'
    end
    if bucket and bucket[SUPPRESSED] and rules.reporting and bucket[SUPPRESSED] > (bucket[REPORTED] or 0) and not full then
      report_suppressed(bucket, s, at_ms, entry, body, 0)
    end
    if aggregated then
      tally.aggregated = tally.aggregated + 1
      note('A', s, 1)
    end

    local letter
    if r.o[COUNT] > 1 then letter = r.present and 'p' or (seen and 'r' or 'n')
    else letter = seen and 'k' or 'c' end
    local message = aggregated and rules.prefix .. (open_body(body)[BODY_MESSAGE] or '')
    if r.present then
      tally.patched = tally.patched + 1
      if patch(r, entry, message, last) then tally.late = tally.late + 1 end
    elseif full then
      tally.not_created, letter = tally.not_created + 1, 'm'
      note('M', s, 1)
    else
      tally.created = tally.created + 1
      -- It had expired, and another event may have taken its name.
      if seen then r.o[NAME] = free_name(r.o[NAMESPACE], r.o[NAME], i) end
      create(r, entry, subjects[s + ABOUT], uid, body, aggregated and 'a' or '', message, last, now_ms)
    end
    return aggregated and string.upper(letter) or letter
  end

  -- Decides a run as if each event was decided alone. After the first one, the set of similar messages does not change, the
  -- bucket gets no tokens, and no event is created: the first was, or none can be. So the rest needs no loop. Returns nil if
  -- the count leaves the usual numbers: then an event in the middle may begin another one, with its own name and uid.
  local function decide_run(entry, at_ms, n, key, n_body, name, first, lasts, times, uid)
    local repeats = #lasts / TIME_BYTES - 1
    local function last_of(place)
      return cmsgpack.unpack('\207' .. sub(lasts, (place - 1) * TIME_BYTES + 1, place * TIME_BYTES))
    end
    local letter = decide(entry, at_ms, n, key, n_body, name, first, last_of(1), times, uid)
    local s = (n - 1) * SUBJECT_FIELDS
    local aggregated = letter == string.upper(letter)
    local r = object_of(aggregated and report_at + subjects[s + AGGREGATE] or key)
    local o = r.o
    if o[COUNT] < 1 or o[COUNT] > MOST_COUNT - repeats then return nil end

    local bucket = subjects[s + EXEMPT] ~= 1 and bucket_of(subjects[s + STATE])
    local passed = bucket and 0 or repeats
    while passed < repeats and pass_filter(bucket, at_ms, burst, qps) do passed = passed + 1 end
    local suppressed = repeats - passed
    if passed > 0 then
      o[COUNT] = o[COUNT] + passed
      if aggregated then
        tally.aggregated = tally.aggregated + passed
        note('A', s, passed)
      end
      if r.present then
        tally.patched = tally.patched + passed
        local is_late = patch(r, entry, false, aggregated and at_ms * 1000 or last_of(1 + passed))
        if is_late then tally.late = tally.late + passed end
      else
        tally.not_created = tally.not_created + passed
        note('M', s, passed)
      end
    end
    if suppressed > 0 then
      o[COUNT] = o[COUNT] + suppressed
      if r.present then count_unwritten(r, aggregated and at_ms * 1000 or last_of(1 + repeats)) end
      held_back(bucket, s, at_ms, entry, bodies[n_body], 1) -- this one may create the report
      if suppressed > 1 then held_back(bucket, s, at_ms, entry, bodies[n_body], suppressed - 1) end
    end
    local letters = letter .. string.rep(r.present and 'p' or 'm', passed) .. string.rep('s', suppressed)
    return aggregated and string.upper(letters) or letters
  end

  return decide, decide_run, tally, by_subject
end
