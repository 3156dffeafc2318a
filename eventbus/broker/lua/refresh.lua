-- refresh: publish the counts of suppressed repeats, which are counted and not written. One R change each; it moves neither
-- the written fields nor the expiry. A report of suppression is written a minute after its last write, with an M, so that
-- the last suppressed repeats are reported even if no other follows. A series is written at its end and at each full half
-- hour, with an M and a new life. Checks every given key again.
-- Call    Functions.refresh in functions.py
-- KEYS[1] meta HASH   KEYS[2] index:name ZSET   KEYS[3] index:object ZSET   KEYS[4] index:refresh ZSET
-- KEYS[5] changes:<kind> STREAM   KEYS[6] version:<kind> STRING   KEYS[7] note:<of> STRING
-- KEYS[8] spoiled HASH   KEYS[9] index:expiry ZSET
-- KEYS[10…] object:… STRING   candidates, longest due first
-- ARGV[1] limit       changes a second, of all callers together
-- ARGV[2] now_ms      '' the clock of the server (workers), else this (tests)   ARGV[3] event_ttl_ms
-- Reply   {published, no longer due}
-- Writes  KEYS 1 and 4 to 10; allowed when memory is full: `changes` does not become longer.

local FIXED_REFRESH = 9

local function refresh(keys, args)
  local meta, index_name, index_object, index_refresh = keys[1], keys[2], keys[3], keys[4]
  local changes, version, note, index_expiry = keys[5], keys[6], keys[7], keys[9]
  local limit = number(args[1], 'limit')
  finish_noted(note)
  if #keys == FIXED_REFRESH then return { 0, 0 } end

  local us = now_us()
  local now_ms = args[2] ~= '' and number(args[2], 'now') or math.floor(us / 1000)
  local second = integer_text(math.floor(now_ms / 1000))
  local window = ask('HMGET', meta, 'refresh_second', 'refresh_shown')
  local shown_before = window[1] == second and (tonumber(window[2] or '0') or 0) or 0
  local objects, ids = {}, {}
  for k = FIXED_REFRESH + 1, #keys do
    objects[#objects + 1], ids[#ids + 1] = keys[k], id_of(keys[k])
  end
  local values = redis.call('MGET', version, unpack(objects))
  local dues = ask('ZMSCORE', index_refresh, unpack(ids))
  local rv, bytes = last_version(version, values[1], changes, us)

  local prefix = prefix_of(objects[1])
  local c = new_changes(changes, version, rv, bytes, prefix, index_name, index_object)
  local expire_at = integer_text(now_ms + number(args[3], 'event_ttl'))
  local strings, steps, done, later, expiry, shown = {}, {}, {}, {}, {}, 0
  for n, key in ipairs(objects) do
    local id, due = ids[n], tonumber(dues[n] or nil)
    local o = due and due <= now_ms and unpack_key(key, values[n + 1], unpack_event)
    if due and due <= now_ms and not (o and o[BODY] and o[DUE]) then
      done[#done + 1] = id
    elseif o and shown_before + shown < limit then
      local letter, write_due, in_series = 'R', o[WRITE_DUE] or o[FORM] == 's' and now_ms, o[FORM] == 'e'
      local ended = in_series and series_ended(series_last_ms(o), now_ms)
      if write_due and (write_due <= now_ms or ended) then
        letter, o[STORED_COUNT], o[LAST], o[SEEN], o[WRITTEN] = 'M', o[COUNT], o[SEEN] or o[LAST], false, false
        write_due = in_series and not ended and series_refresh_ms(now_ms)
        o[WRITE_DUE] = write_due
        if in_series then expiry[#expiry + 1], expiry[#expiry + 2] = expire_at, id end
      else
        o[WRITTEN] = o[WRITTEN] or o[RV]
      end
      if write_due and in_series then write_due = math.min(write_due, series_end_ms(series_last_ms(o))) end
      o[RV], o[DUE], o[CHANGED] = c.last + 1, write_due, now_ms
      local packed = pack_event(o)
      add_change(c, letter, id, packed)
      strings[#strings + 1], strings[#strings + 2] = key, packed
      if write_due then later[#later + 1], later[#later + 2] = integer_text(write_due), id else done[#done + 1] = id end
      shown = shown + 1
    end
  end

  local dropped = #done + #later / 2 - shown
  if #done + #later == 0 then return { 0, 0 } end
  step_each(steps, done, 'ZREM', index_refresh)
  step_each(steps, later, 'ZADD', index_refresh)
  step_each(steps, expiry, 'ZADD', index_expiry)
  if shown > 0 then
    step(steps, 'HSET', meta, 'refresh_second', second, 'refresh_shown', integer_text(shown_before + shown))
  end
  if memory_full(now_ms) then step_within(steps, c, 0, true) end
  commit(note, strings, c, steps)
  return { shown, dropped }
end

register('refresh', naming_corrupt(refresh, 8), { 'allow-oom' })
