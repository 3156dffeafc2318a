-- Corrupt values: another type, or bytes that cannot be read, under the key of a string. Such a value counts as missing, and
-- the next write replaces it. It is counted in eb:{p}:spoiled, with the commit if there is one, and named after the reply.
-- If the key of a hash, stream or sorted set has another type, the call fails before it writes, and the error names the key.

-- Of the current call: the keys with corrupt values, how many of them are counted, and the key of the counter.
local corrupt = { keys = {}, counted = 0, counter = nil }

local function note_corrupt(key)
  corrupt.keys[#corrupt.keys + 1] = key
end

-- Returns the value of *packed*, the reply of MGET for *key*, and whether it is corrupt. MGET and MSET treat another type as
-- missing; EXISTS finds it.
local function unpack_key(key, packed, unpack_it)
  local o, is_corrupt = unpack_it(packed)
  if not packed then is_corrupt = redis.call('EXISTS', key) == 1 end
  if is_corrupt then note_corrupt(key) end
  return o, is_corrupt
end

-- The same for many keys that MGET reports as *missing*.
local function note_other_types(missing)
  for low = 1, #missing, MANY do
    local high = math.min(low + MANY - 1, #missing)
    if redis.call('EXISTS', unpack(missing, low, high)) > 0 then
      for n = low, high do
        if redis.call('EXISTS', missing[n]) == 1 then note_corrupt(missing[n]) end
      end
    end
  end
end

-- Returns the command that counts the keys that are not counted yet; nil: there are none.
local function count_corrupt()
  local keys, counter_key = corrupt.keys, corrupt.counter
  if corrupt.counted == #keys then return nil end
  local times = (tonumber(ask('HGET', counter_key, 'times') or '0') or 0) + #keys - corrupt.counted
  corrupt.counted = #keys
  return { 'HSET', counter_key, 'times', integer_text(times), 'last_key', keys[#keys] }
end

-- Returns the callback of a function that has eb:{p}:spoiled as KEYS[*counter_at*].
local function naming_corrupt(run, counter_at)
  return function(keys, args)
    corrupt, typed = { keys = {}, counted = 0, counter = keys[counter_at] }, {}
    pack, sub, find = cmsgpack.pack, string.sub, string.find
    local reply = run(keys, args)
    if #corrupt.keys == 0 then return reply end
    local command = count_corrupt()
    if command then redis.call(unpack(command)) end
    local named = { '!', reply }
    for n, key in ipairs(corrupt.keys) do named[n + 2] = key end
    return named
  end
end
