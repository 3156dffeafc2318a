-- notify_acquire: become the one worker that notifies, or return the current one.
-- Call    NotifyStore.acquire in notifications.py
-- KEYS[1] eb:{p}:notify  HASH  of partition 0   KEYS[2] eb:{p}:index:notify  ZSET   KEYS[3] eb:{p}:note:<of>  STRING
-- KEYS[4] eb:{p}:spoiled  HASH           KEYS[5] eb:{p}:meta  HASH
-- ARGV[1] consumer   ARGV[2] rules  hash of its rules, and ' rejected' if a newer file is
-- ARGV[3] holder  that looks dead to this consumer, '' none   ARGV[4] beats  its counter, which has not changed
-- ARGV[5] bus     id of the bus that the caller has opened, '' is not compared
-- Reply   {'OK', term, ms} | {'HELD', holder, its beats, ms}; ms: the time of the server, the clock of all timers
-- Writes  KEYS 1: holder, term, beats, number, rules, and `file:<consumer>` → '<ms> <hash>' of each worker; removes expired
--         members of KEYS 2, and finishes an interrupted `notify_settle`; allowed when memory is full. term grows with each
--         take-over: `notify_settle` refuses an older one.

local FILE_LIFE_MS = 3600 * 1000

local function old_files(notify, now_ms)
  local fields, old = ask('HGETALL', notify), {}
  for i = 1, #fields, 2 do
    if string.find(fields[i], '^file:') then
      local at_ms = tonumber(string.match(fields[i + 1], '^(%d+) ') or '0')
      if at_ms < now_ms - FILE_LIFE_MS and #old < MANY then old[#old + 1] = fields[i] end
    end
  end
  return old
end

local function notify_acquire(keys, args)
  local notify, index, note, meta = keys[1], keys[2], keys[3], keys[5]
  local consumer, rules, seen, seen_beats = args[1], args[2], args[3], args[4]

  check_bus(meta, args[5])
  finish_noted(note)
  local known = ask('HMGET', notify, 'holder', 'beats', 'term')
  local holder, beats = known[1] or '', known[2] or ''
  local now_ms = math.floor(now_us() / 1000)
  local file = integer_text(now_ms) .. ' ' .. rules
  if holder ~= '' and holder ~= consumer and (holder ~= seen or beats ~= seen_beats) then
    redis.call('HSET', notify, 'file:' .. consumer, file)
    return { 'HELD', holder, beats, now_ms }
  end
  local term = counter(known[3]) or 0
  local old = {}
  if holder ~= consumer then
    term = term + 1
    old = old_files(notify, now_ms)
    check_type(index, 'zset')
  end

  for _, field in ipairs(old) do redis.call('HDEL', notify, field) end
  if holder ~= consumer then
    redis.call('ZREMRANGEBYSCORE', index, '-inf', now_ms)
    redis.call('HSET', notify, 'number', '0')
  end
  redis.call(
    'HSET', notify, 'holder', consumer, 'term', integer_text(term), 'beats', integer_text((counter(beats) or 0) + 1),
    'rules', rules, 'file:' .. consumer, file
  )
  return { 'OK', term, now_ms }
end

register('notify_acquire', naming_corrupt(notify_acquire, 4), { 'allow-oom' })
