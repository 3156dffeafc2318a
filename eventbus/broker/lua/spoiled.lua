-- What a call finds under the name of a string of ours and is not ours: another type, garbage. It counts as missing. Every
-- function deals with it alike: it is counted in eb:{p}:spoiled, with the commit where there is one, and named behind the reply.

local spoiled = {} -- keys that the call under way has found
local told = 0 -- how many of these are counted
local told_in -- where, of their partition

local function spoil(key)
  spoiled[#spoiled + 1] = key
end

-- What *unpack_it* makes of *packed*, which MGET says *key* holds. Second, whether it is not ours. MGET takes another
-- type for missing, and so does MSET: whoever asks by EXISTS finds it.
local function ours(key, packed, unpack_it)
  local o, is_spoiled = unpack_it(packed)
  if not packed then is_spoiled = redis.call('EXISTS', key) == 1 end
  if is_spoiled then spoil(key) end
  return o, is_spoiled
end

-- The same of many keys that MGET says are *missing*.
local function spoil_others(missing)
  for low = 1, #missing, MANY do
    local high = math.min(low + MANY - 1, #missing)
    if redis.call('EXISTS', unpack(missing, low, high)) > 0 then
      for n = low, high do
        if redis.call('EXISTS', missing[n]) == 1 then spoil(missing[n]) end
      end
    end
  end
end

-- The command that counts what was not counted yet; nil: there is none.
local function counting_spoiled()
  if told == #spoiled then return nil end
  local before = tonumber(ask('HGET', told_in, 'times') or '0') or 0
  local command = {
    'HSET', told_in, 'times', integer_text(before + #spoiled - told), 'last_key', spoiled[#spoiled],
  }
  told = #spoiled
  return command
end

-- The callback of a function whose KEYS[*counted_at*] is eb:{p}:spoiled.
local function naming_spoiled(run, counted_at)
  return function(keys, args)
    spoiled, told, told_in, typed = {}, 0, keys[counted_at], {}
    pack, sub, find = cmsgpack.pack, string.sub, string.find
    local reply = run(keys, args)
    if #spoiled == 0 then return reply end
    local command = counting_spoiled()
    if command then redis.call(unpack(command)) end
    local named = { '!', reply }
    for n, key in ipairs(spoiled) do named[n + 2] = key end
    return named
  end
end
