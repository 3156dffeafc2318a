-- The spam filter: a token bucket of each subject, with what it has held back and what of that was reported.

local TOKENS, ACCEPTED, SUPPRESSED, REPORTED, REPORTED_MS = 1, 2, 3, 4, 5

local function is_bucket(b)
  if type(b) ~= 'table' then return false end
  for n = TOKENS, REPORTED_MS do
    if b[n] ~= nil and type(b[n]) ~= 'number' then return false end
  end
  return (b[TOKENS] == nil) == (b[ACCEPTED] == nil) and (b[REPORTED] == nil) == (b[REPORTED_MS] == nil)
end

-- client-go's token bucket (golang.org/x/time/rate, AllowN) at whole milliseconds.
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
