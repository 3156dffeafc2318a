-- claim: take over what a dead worker of the group left pending, and count its death for each entry. A worker without a
-- counter has left and did not die: no death is counted. First of all the call notes that the claimer lives: otherwise two
-- workers that have both just come back would take the same entries from each other, until these seem to kill.
-- KEYS[1] incoming STREAM   KEYS[2] workers HASH   KEYS[3] attempts:<group> HASH
-- ARGV[1] group  ARGV[2] consumer  the claimer   ARGV[3] dead consumer
-- ARGV[4] beats  the counter the claimer has seen stand still, '' if there was none
-- ARGV[5] limit  entries a call
-- Reply   {id, deaths, id, deaths, …}; empty when it lives after all, or nothing is left (then it is forgotten)
-- Writes  all three; allowed when memory is full, since the stream must drain. A call cut off after XCLAIM has taken
--         the entries without counting a death: one too few means another try, one too many could bury a good event.

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
