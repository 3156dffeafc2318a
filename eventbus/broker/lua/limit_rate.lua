-- limit_rate: take tokens out of buckets that several callers share. A bucket is the time at which it is full again: one that
-- is not there is full, so it lives no longer than it says something, and nothing has to sweep it.
-- KEYS[1] spoiled HASH   KEYS[2…] rate:<digest> STRING   µs since 1970 when it is full; PX until then
-- ARGV[1] all    '1' take from all of them or, where one has no token, from none; '' take from those that have one
-- ARGV[2…] for each bucket: tokens that come back a second, tokens at the most, tokens to take. More than there are may be
--         taken where there is one: the bucket owes them
-- Reply   for each bucket µs until it has a token; 0: it had one
-- Writes  KEYS[2…]; never when memory is full. A call that is cut off has taken tokens from the first of them: these come back.

local SECOND = 1000000
-- Tokens of one call, and so what a bucket owes at the most; more is a clock that was set back.
local MOST_TAKEN = 32768

local function full_at(packed)
  local at = counter(packed)
  return at or 0, packed and not at
end

-- µs until each bucket is full.
local function read_buckets(keys, now)
  local ahead, missing = {}, {}
  for low = 2, #keys, MANY do
    local high = math.min(low + MANY - 1, #keys)
    for n, packed in ipairs(redis.call('MGET', unpack(keys, low, high))) do
      local key = keys[low + n - 1]
      if packed then
        ahead[#ahead + 1] = math.max(0, ours(key, packed, full_at) - now)
      else
        ahead[#ahead + 1], missing[#missing + 1] = 0, key
      end
    end
  end
  spoil_others(missing)
  return ahead
end

local function limit_rate(keys, args)
  local all, now = args[1] == '1', now_us()
  local ahead, waits, until_full, lacking = read_buckets(keys, now), {}, {}, false
  for n, found in ipairs(ahead) do
    local rate = whole(args[3 * n - 1], 'rate', 1, MOST)
    local burst = whole(args[3 * n], 'burst', 1, MOST)
    local count = whole(args[3 * n + 1], 'tokens', 1, MOST_TAKEN)
    found = math.min(found, (burst + MOST_TAKEN) * SECOND / rate)
    waits[n] = math.max(0, math.ceil(found - (burst - 1) * SECOND / rate))
    until_full[n] = math.ceil(found + count * SECOND / rate)
    lacking = lacking or waits[n] > 0
  end

  if all and lacking then return waits end
  for n, ends in ipairs(until_full) do
    if waits[n] == 0 then
      redis.call('SET', keys[n + 1], integer_text(now + ends), 'PX', integer_text(math.ceil(ends / 1000)))
    end
  end
  return waits
end

register('limit_rate', naming_spoiled(limit_rate, 1))
