-- Shared by all functions: no keys, no verbs. Redis does not roll back, so each function checks everything, reads
-- everything, decides, and then writes: see commit.lua.

-- Registers a function under a name with the build; *flags*: of the function, nil: none.
local function register(verb, callback, flags)
  redis.register_function{ function_name = 'eb_' .. BUILD .. '_' .. verb, callback = callback, flags = flags or {} }
end

local MANY = 1000 -- members in one command: far below the limit of the stack of Lua

-- A key of an object or a state ends with its id, and so does a member of an index.
local ID_CHARS = 14

-- Functions that each event needs several times: a global costs two look-ups each time. They do not exist yet when the
-- library is loaded, so `naming_corrupt`, the wrapper of the functions that need them, sets them.
local pack, sub, find

local function id_of(text)
  return sub(text, -ID_CHARS)
end

local function prefix_of(key)
  return string.sub(key, 1, -ID_CHARS - 1)
end

local memory = { checked_ms = 0, full = false }

local function number(text, name)
  local n = tonumber(text)
  if not n or n ~= n or n == math.huge or n == -math.huge then
    error({ err = 'ERR eventbus: ' .. name .. ' is not a number' })
  end
  return n
end

local MOST = 2 ^ 53 - 1 -- larger integers are not exact in Lua

-- Reads a whole number in decimal digits; nil: any other text, also nan, inf, 0x10 and 1e3, which Lua accepts.
local function counter(text)
  if not text or #text > 16 or not string.find(text, '^%d+$') then return nil end
  local n = tonumber(text)
  return n <= MOST and n or nil
end

local function whole(text, name, least, most)
  local n = counter(text)
  if n and n >= least and n <= most then return n end
  error({ err = string.format('ERR eventbus: %s is not a number from %d to %d', name, least, most) })
end

-- Formats a whole number below 2^53. Redis itself formats numbers with %.17g, which costs ten times as much.
local function integer_text(n)
  return string.format('%d', n)
end

local function wrong_type(key, found, wanted)
  error({ err = 'WRONGTYPE eventbus: ' .. key .. ' is a ' .. found .. ', not a ' .. wanted })
end

-- Keys of the current call with a type that a command has checked already.
local typed = {}

local function check_type(key, wanted)
  local found = redis.call('TYPE', key).ok
  if found ~= wanted and found ~= 'none' then wrong_type(key, found, wanted) end
end

-- Executes a read; an error names the key.
local function ask(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) == 'table' and reply.err then error({ err = reply.err .. ' (' .. key .. ')' }) end
  return reply
end

-- The bus may have been recreated since the caller opened it. Checked before the first write.
local function check_bus(meta, bus)
  if (bus or '') ~= '' and ask('HGET', meta, 'bus') ~= bus then
    error({ err = 'OTHERBUS eventbus: ' .. meta .. ' belongs to another bus' })
  end
end

local function now_us()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000000 + tonumber(t[2])
end

-- INFO costs tens of microseconds, so the answer is kept for 10 ms: calls store at most some hundred kilobytes meanwhile.
local function memory_full(now_ms)
  if now_ms - memory.checked_ms >= 10 or now_ms < memory.checked_ms then
    local info = redis.call('INFO', 'memory')
    local used = tonumber(string.match(info, 'used_memory:(%d+)'))
    local most = tonumber(string.match(info, 'maxmemory:(%d+)'))
    memory.full = most ~= nil and most > 0 and used ~= nil and used > most
    memory.checked_ms = now_ms
  end
  return memory.full
end

-- 'ms-seq' as two numbers
local function entry_id(text)
  local ms, seq = string.match(text, '^(%d+)-(%d+)$')
  if not ms then error({ err = 'ERR eventbus: not an entry id' }) end
  return tonumber(ms), tonumber(seq)
end

-- Foreign entries may have ids with more than fifteen digits, which no clock gives: for them these two only keep the order.
local function id_after(id)
  local ms, seq = entry_id(id)
  if ms >= 10 ^ 15 then return seq < 2 ^ 53 and string.match(id, '^%d+') .. '-' .. integer_text(seq + 1) or id end
  if seq >= 2 ^ 53 then return integer_text(ms + 1) .. '-0' end -- a result of `id_before`: the last of its ms
  return integer_text(ms) .. '-' .. integer_text(seq + 1)
end

local function id_before(id)
  local ms, seq = entry_id(id)
  if seq > 0 then return string.match(id, '^%d+') .. '-' .. integer_text(math.min(seq, 2 ^ 53) - 1) end
  return integer_text(math.min(ms, 10 ^ 15) - 1) .. '-18446744073709551615'
end

local function entry_before(a, b)
  local a_ms, a_seq = string.match(a, '^(%d+)-(%d+)$')
  local b_ms, b_seq = string.match(b, '^(%d+)-(%d+)$')
  if not a_ms or not b_ms then error({ err = 'ERR eventbus: not an entry id' }) end
  if a_ms == b_ms then a_ms, b_ms = a_seq, b_seq end
  return #a_ms < #b_ms or (#a_ms == #b_ms and a_ms < b_ms) -- as texts: exact for all 64 bits
end

-- Returns the next entries after *id*; a reply with `err` if the caller may not read them.
local function entries_after(stream, id)
  if id == '18446744073709551615-18446744073709551615' then return {} end -- the highest possible id
  return redis.pcall('XRANGE', stream, '(' .. id, '+', 'COUNT', 100)
end

local function fields_of(entry)
  local fields = {}
  for i = 1, #entry[2], 2 do fields[entry[2][i]] = entry[2][i + 1] end
  return fields
end

-- Returns the last id of a stream; '0-0' if there is none.
local function last_id(stream)
  if redis.call('EXISTS', stream) == 0 then return '0-0' end
  return redis.call('XINFO', 'STREAM', stream)[8]
end

-- Returns the running number of the last event before entry *id*, of *events* in total; nil: a foreign entry has none.
local function number_before(incoming, id, events)
  local entry = ask('XRANGE', incoming, id, '+', 'COUNT', 1)[1]
  if not entry then return events end
  local fields = fields_of(entry)
  local to = counter(fields.to)
  return to and to - (counter(fields.n) or 0)
end

-- Returns the groups for which the stream is kept: {group, last delivered id}, or {group, false} if it was destroyed by hand
-- and will be recreated at its floor. Second, the content of meta.
local function groups_kept(incoming, meta)
  local kept, existing, known = {}, {}, {}
  for _, info in ipairs(redis.call('XINFO', 'GROUPS', incoming)) do
    kept[#kept + 1] = { info[2], info[8] }
    existing[info[2]] = true
  end
  local fields = ask('HGETALL', meta)
  for i = 1, #fields, 2 do
    known[fields[i]] = fields[i + 1]
    local group = string.match(fields[i], '^floor:(.*)$')
    if group and not existing[group] then kept[#kept + 1] = { group, false } end
  end
  return kept, known
end

local function owned(incoming, group, consumer, id)
  local pending = ask('XPENDING', incoming, group, id, id, 1)
  typed[incoming] = true
  return pending[1] ~= nil and pending[1][2] == consumer
end

register('build', function() return BUILD end, { 'no-writes' })
