-- checkpoint: add the versions of all partitions, as one caller has read them, to the checkpoints that all callers share.
-- Call    Functions.checkpoint in functions.py
-- KEYS[1] checkpoints STREAM
-- ARGV[1] after     number of the last checkpoint that the caller knows; '' none
-- ARGV[2] whole     '1' the versions are those of all partitions, read just now; '' some may be lower, or 0
-- ARGV[3] lost      number of a checkpoint that is ahead of the store, '' none: if it is the last, the stream begins again
-- ARGV[4…] version  of each partition
-- Reply   {'OK', number of the oldest checkpoint, entries after *after*: at most 500} | {'READ'} call with whole versions
-- Writes  KEYS[1]; allowed when memory is full, since it is bounded. The id of an entry is <number>-0. It has `by`, the
--         history that wrote it (see objects.lua), and `v`, the versions, msgpack: never lower than in the entry before; the
--         number grows by the same sum. If the last entry cannot be continued (a restart, a promotion, a flush, a version
--         that jumped or went back, a caller that knows a higher number), the stream begins again with one entry, with a
--         number above all earlier ones.

local PAGE = 500
-- A version that grew by more than this has jumped: see last_version.
local JUMP = 10000000
local BYTES, ENTRIES = 8 * 1024 * 1024, 20000

-- Returns number, versions and history of the last checkpoint; nil: there is none that can be continued.
local function last_checkpoint(key, count)
  local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  local number = last and counter(string.match(last[1], '^(%d+)-0$'))
  if not number then return nil end
  local fields = fields_of(last)
  local ok, versions = pcall(cmsgpack.unpack, fields.v or '')
  if not ok or type(versions) ~= 'table' or #versions ~= count then return nil end
  for _, version in ipairs(versions) do
    if type(version) ~= 'number' then return nil end
  end
  return number, versions, fields.by
end

-- Returns the higher of each, and by how much they have grown; nil: one has jumped.
local function joined(former, versions)
  local higher, grown = {}, 0
  for i, version in ipairs(former) do
    higher[i] = math.max(version, versions[i])
    if higher[i] - version >= JUMP then return nil end
    grown = grown + higher[i] - version
  end
  return higher, grown
end

local function add_checkpoint(key, number, versions, most)
  redis.call('XADD', key, 'MAXLEN', most == 1 and '=' or '~', most, integer_text(number) .. '-0', 'v', cmsgpack.pack(versions), 'by', history())
  written_rv[key] = number
end

local function checkpoint(keys, args)
  local key, after, is_whole, lost = keys[1], args[1], args[2] == '1', args[3]
  local versions = {}
  for i = 4, #args do versions[i - 3] = whole(args[i], 'version', 0, MOST) end
  local known = after ~= '' and whole(after, 'after', 0, MOST) or 0
  check_type(key, 'stream')
  local number, former, by = last_checkpoint(key, #versions)
  local higher, grown
  if former and known <= number and lost ~= integer_text(number)
    and ((written_rv[key] == number and was_present(by, now_us())) or is_present(by)) then
    higher, grown = joined(former, versions)
  end
  if not higher then
    if not is_whole then return { 'READ' } end
    local last = math.max(entry_id(last_id(key)), written_rv[key] or 0, known)
    add_checkpoint(key, math.max(last > 0 and last + JUMP or 0, now_us()), versions, 1)
  elseif grown > 0 then
    add_checkpoint(key, number + grown, higher, math.min(ENTRIES, math.floor(BYTES / (9 * #versions + 40))))
  end
  local oldest = redis.call('XRANGE', key, '-', '+', 'COUNT', 1)[1][1]
  local from = after == '' and '-' or '(' .. integer_text(known) .. '-0'
  return { 'OK', string.match(oldest, '^%d+'), redis.call('XRANGE', key, from, '+', 'COUNT', PAGE) }
end

register('checkpoint', checkpoint, { 'allow-oom' })
