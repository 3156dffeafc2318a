-- claim: take over the pending entries of a dead worker of the group, and count its death for each entry. A worker without a
-- counter has left and did not die: no death is counted. The call first raises the counter of the claimer. Otherwise two
-- workers that have both just come back would take the same entries from each other, until the entries seem to kill.
-- Call    Functions.claim in functions.py
-- KEYS[1] incoming STREAM   KEYS[2] workers HASH   KEYS[3] attempts:<group> HASH
-- ARGV[1] group  ARGV[2] consumer  the claimer   ARGV[3] dead consumer
-- ARGV[4] beats  the counter of the dead consumer that the claimer has observed, '' if it had none
-- ARGV[5] limit  entries a call
-- Reply   {id, deaths, id, deaths, …}; empty if the consumer is alive, or has no pending entries (then it is deleted)
-- Writes  all three; allowed when memory is full, since the stream must drain. A call that is interrupted after XCLAIM has
--         taken the entries without counting a death: one too few means another try, one too many could bury a good event.

local function claim(keys, args)
  local incoming, workers, attempts = keys[1], keys[2], keys[3]
  local group, consumer, from, beats = args[1], args[2], args[3], args[4]
  local limit = number(args[5], 'limit')

  local field = group .. '/' .. from
  if (ask('HGET', workers, field) or '') ~= beats then return {} end
  local pending = ask('XPENDING', incoming, group, '-', '+', limit, from)
  if #pending == 0 then
    redis.call('XGROUP', 'DELCONSUMER', incoming, group, from)
    redis.call('HDEL', workers, field)
    return {}
  end
  local ids, reply, deaths = {}, {}, {}
  for i, p in ipairs(pending) do ids[i] = p[1] end
  for i, n in ipairs(ask('HMGET', attempts, unpack(ids))) do
    local died = (tonumber(n or '0') or 0) + (beats == '' and 0 or 1)
    reply[2 * i - 1], reply[2 * i] = ids[i], died
    deaths[2 * i - 1], deaths[2 * i] = ids[i], integer_text(died)
  end

  redis.call('HINCRBY', workers, group .. '/' .. consumer, 1)
  redis.call('XCLAIM', incoming, group, consumer, 0, unpack(ids))
  if beats ~= '' then redis.call('HSET', attempts, unpack(deaths)) end
  return reply
end

register('claim', claim, { 'allow-oom' })
