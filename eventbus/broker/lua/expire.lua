-- expire: remove events that are due, or that are the least recently written beyond a bound, with a DELETED change each; and
-- counts likewise. Checks every given key again.
-- Call    Functions.expire in functions.py
-- KEYS[1] meta HASH   KEYS[2] index:name ZSET   KEYS[3] index:object ZSET   KEYS[4] index:expiry ZSET
-- KEYS[5] index:forget ZSET   KEYS[6] changes:<kind> STREAM   KEYS[7] suppressed HASH
-- KEYS[8] version:<kind> STRING      KEYS[9] note:<of> STRING   KEYS[10] spoiled HASH
-- KEYS[11…] object:… STRING   candidates, oldest first, at most 100
-- ARGV[1] max_stored  ARGV[2] max_records  bounds   ARGV[3] event_ttl_ms   ARGV[4] record_ttl_ms
-- ARGV[5] now_ms      '' the clock of the server (workers), else this (tests)
-- Reply   {expired, evicted, forgotten, counts evicted, {source, ms, …}}  the sources of removed records, for `forget`: the state
--         of each may be deleted, unless it was used after ms
-- Writes  all of them; allowed when memory is full, since it only frees.

local FIXED_EXPIRE = 10

local function scores_of(index, ids)
  return ask('ZMSCORE', index, unpack(ids))
end

-- If `refresh` had too much to do, publishes the last count of a report or series now. Returns whether this was so.
local function publish_last(c, strings, o, key, now_ms)
  if o[FORM] ~= 's' and o[FORM] ~= 'e' or o[COUNT] == o[STORED_COUNT] then return false end
  o[STORED_COUNT], o[RV], o[WRITTEN], o[DUE], o[CHANGED] = o[COUNT], c.last + 1, false, false, now_ms
  o[LAST], o[SEEN], o[WRITE_DUE] = o[SEEN] or o[LAST], false, false
  local packed = pack_event(o)
  add_change(c, 'M', id_of(key), packed)
  strings[#strings + 1], strings[#strings + 2] = key, packed
  return true
end

local function expire(keys, args)
  local meta, index_name, index_object, index_expiry = keys[1], keys[2], keys[3], keys[4]
  local index_forget, changes, suppressed, version, note = keys[5], keys[6], keys[7], keys[8], keys[9]
  local max_stored, max_records = number(args[1], 'max_stored'), number(args[2], 'max_records')
  local event_ttl_ms, record_ttl_ms = number(args[3], 'event_ttl'), number(args[4], 'record_ttl')
  finish_noted(note)
  if #keys == FIXED_EXPIRE then return { 0, 0, 0, 0, {} } end

  local us = now_us()
  local now_ms = args[5] ~= '' and number(args[5], 'now') or math.floor(us / 1000)
  local objects, ids = {}, {}
  for k = FIXED_EXPIRE + 1, #keys do
    objects[#objects + 1], ids[#ids + 1] = keys[k], id_of(keys[k])
  end
  local values = redis.call('MGET', version, unpack(objects))
  local dues, forgets = scores_of(index_expiry, ids), scores_of(index_forget, ids)
  local stored, counts = ask('ZCARD', index_expiry), ask('ZCARD', index_forget)
  local rv, bytes = last_version(version, values[1], changes, us)

  local prefix = prefix_of(objects[1])
  local c = new_changes(changes, version, rv, bytes, prefix, index_name, index_object)
  local strings, steps, evicted = {}, {}, {}
  local due_again, due_no_more, forget, forgotten, gone = {}, {}, {}, {}, {}
  local reply, forget_at, sources = { 0, 0, 0, 0, {} }, integer_text(now_ms + record_ttl_ms), {}
  for n, key in ipairs(objects) do
    local id, due, forget_ms = ids[n], tonumber(dues[n] or nil), tonumber(forgets[n] or nil)
    if due and (due <= now_ms or stored > max_stored) then
      local o, is_corrupt = unpack_key(key, values[n + 1], unpack_event)
      -- A corrupt event expires like any other one after its next write.
      if is_corrupt or o and o[BODY] and due <= now_ms and publish_last(c, strings, o, key, now_ms) then
        due_again[#due_again + 1], due_again[#due_again + 2] = integer_text(now_ms + event_ttl_ms), id
      elseif not o or not o[BODY] then
        due_no_more[#due_no_more + 1] = id
      else
        local outcome, subject = due <= now_ms and 1 or 2, due > now_ms and subject_of(o)
        if remove_stored(c, strings, steps, forget, o, key, forget_at, now_ms) then counts = counts + 1
        elseif o[SOURCE] then sources[o[SOURCE]] = now_ms - 2 * FINISH_MS -- of a series that has ended
        end
        due_no_more[#due_no_more + 1] = id
        stored, reply[outcome] = stored - 1, reply[outcome] + 1
        if subject then evicted[subject] = (evicted[subject] or 0) + 1 end
      end
    elseif not due and forget_ms and (forget_ms <= now_ms or stored + counts > max_records) then
      local outcome = forget_ms <= now_ms and 3 or 4
      local o = unpack_key(key, values[n + 1], unpack_event)
      if o and o[SOURCE] then
        sources[o[SOURCE]] = math.max(sources[o[SOURCE]] or 0, forget_ms - record_ttl_ms)
      end
      gone[#gone + 1], forgotten[#forgotten + 1] = key, id
      counts, reply[outcome] = counts - 1, reply[outcome] + 1
    end
  end

  step_each(steps, due_no_more, 'ZREM', index_expiry)
  step_each(steps, due_again, 'ZADD', index_expiry)
  step_each(steps, forget, 'ZADD', index_forget)
  step_each(steps, gone, 'DEL')
  step_each(steps, forgotten, 'ZREM', index_forget)
  step_raised(steps, meta, {
    expired = reply[1], evicted = reply[2], forgotten = reply[3], forgotten_early = reply[4],
  })
  step_by_subject(steps, suppressed, { E = evicted })
  if #steps > 0 then commit(note, strings, c, steps) end
  local free = reply[5]
  for source, ms in pairs(sources) do free[#free + 1], free[#free + 2] = source, integer_text(ms) end
  return reply
end

register('expire', naming_corrupt(expire, 10), { 'allow-oom' })
