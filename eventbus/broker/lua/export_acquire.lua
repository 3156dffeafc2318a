-- export_acquire: become the one worker that exports this partition to a sink, or return the current one.
-- Call    ExportStore.acquire in exports.py
-- KEYS[1] eb:{p}:export:<sink>  HASH  holder, position, generation, sign_ms
-- KEYS[2] eb:{p}:workers  HASH   KEYS[3] eb:{p}:meta  HASH   KEYS[4] eb:{p}:note:<of>  STRING  of the sink
-- KEYS[5] eb:{p}:spoiled  HASH
-- ARGV[1] sink    ARGV[2] consumer
-- ARGV[3] holder  that looks dead to this consumer, '' none   ARGV[4] beats  its counter, which has not changed
-- ARGV[5] bus     id of the bus that the caller has opened, '' is not compared
-- Reply   {'OK', position or '', generation} | {'HELD', holder, its beats or ''}
-- Writes  KEYS 1 to 3 and 5, and finishes an interrupted `export_settle`; allowed when memory is full, since another worker
--         must be able to take over. generation: set by the first worker of the sink, also after the sink was deleted.
--         sign_ms is only for people: no worker decides by it.

local function export_acquire(keys, args)
  local export, workers, meta, note = keys[1], keys[2], keys[3], keys[4]
  local sink, consumer, seen, seen_beats = args[1], args[2], args[3], args[4]

  check_type(workers, 'hash')
  check_type(meta, 'hash')
  check_bus(meta, args[5])
  finish_noted(note)
  local holder = ask('HGET', export, 'holder') or ''
  local start = 'export:' .. sink .. '/'
  if holder ~= '' and holder ~= consumer then
    local beats = ask('HGET', workers, start .. holder) or ''
    if holder ~= seen or beats ~= seen_beats then return { 'HELD', holder, beats } end
  end
  local position = ask('HGET', export, 'position') or ''
  local us = now_us()

  if holder ~= '' and holder ~= consumer then redis.call('HDEL', workers, start .. holder) end
  redis.call('HSETNX', export, 'generation', integer_text(us))
  redis.call('HSET', export, 'holder', consumer, 'sign_ms', integer_text(math.floor(us / 1000)))
  redis.call('HINCRBY', workers, start .. consumer, 1)
  redis.call('HSET', meta, 'export:' .. sink, '1')
  return { 'OK', position, redis.call('HGET', export, 'generation') }
end

register('export_acquire', naming_corrupt(export_acquire, 5), { 'allow-oom' })
