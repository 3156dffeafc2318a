-- Writes for every function. The first write is one MSET of every string that changes and of a note of all that is still
-- to do: that is the commit. The steps of the note are done in order and may be done twice; then the note is deleted. If
-- the server refuses a step (a right, a type), the note stays, and the next call that writes to the same kind, group or
-- sink finishes it before it decides anything.

-- The commands that a note may hold, and the type of the key behind each. Those that Redis does not know stand below.
local TYPES = {
  XADD = 'stream', XACK = 'stream', XDEL = 'stream', XTRIM = 'stream', XGROUP = 'stream', RELEASE = 'stream',
  BURY = 'stream', STREAM = 'stream', GROUP = 'stream', APPEND = 'stream', ZADD = 'zset', ZREM = 'zset',
  HSET = 'hash', HDEL = 'hash', HSETNX = 'hash', PEXPIRE = 'any', DEL = 'any', LIVES = 'zset', DUE = 'zset', CHANGES = 'any',
}

-- One more command of the note. A command costs more than a member, and is one more line of the AOF.
local function step(steps, ...)
  steps[#steps + 1] = { ... }
end

-- Adds one command with a list of members behind the arguments; with an empty list, nothing.
local function step_each(steps, list, ...)
  for low = 1, #list, MANY do
    local command = { ... }
    for n = low, math.min(low + MANY - 1, #list) do command[#command + 1] = list[n] end
    steps[#steps + 1] = command
  end
end

-- Adds the entry of *c*, unless it is there. If a foreign entry stands behind it, the version jumps over that: readers
-- list again, and find everything.
local function add_entry(c)
  local id = integer_text(c.last) .. '-0'
  local added = redis.pcall(
    'XADD', c.key, id, 'f', integer_text(c.first), 'at', integer_text(c.at), unpack(c.entry)
  )
  if type(added) ~= 'table' or not added.err then return end
  if not string.find(added.err, 'equal or smaller', 1, true) then error(added) end
  local last = entry_id(last_id(c.key))
  if last ~= c.last then c.last = last + 10000000 end
end

-- Removals from an index come first: an object that was replaced comes back under the same name.
local function write_changes(c)
  add_entry(c)
  if #c.unnamed > 0 then redis.call('ZREM', c.index_name, unpack(c.unnamed)) end
  if #c.unnamed_objects > 0 then redis.call('ZREM', c.index_object, unpack(c.unnamed_objects)) end
  if #c.named > 0 then redis.call('ZADD', c.index_name, unpack(c.named)) end
  if #c.named_objects > 0 then redis.call('ZADD', c.index_object, unpack(c.named_objects)) end
  -- Last: a list at this version finds all of it, and a watch from an older version delivers all of it.
  redis.call('SET', c.version_key, version_text(c.last, c.bytes))
  written_rv[c.version_key] = c.last
end

-- What a call that was cut off has left to do stands nowhere else, and without it its events are counted once more or never
-- listed. So what is not ours stops the work here, though it is a string.
local function refuse(key, wanted)
  error({ err = 'WRONGTYPE eventbus: ' .. key .. ' is not ' .. wanted })
end

-- Returns the changes of a note, with the objects as they are stored now: nothing of the kind was written since.
local function noted_changes(noted)
  local _, key, version_key, first, last, at, bytes, prefix, index_name, index_object, told, was = unpack(noted, 1, 12)
  local c = new_changes(key, version_key, first - 1, at, prefix, index_name, index_object)
  for n = 1, #told, 2 do
    local letter, id = string.sub(told[n], 1, 1), string.sub(told[n], 2)
    local unpack_it, packed, o = index_object ~= '' and unpack_event or unpack_item, told[n + 1], nil
    if packed then o = unpack_it(packed)
    else
      packed = redis.call('MGET', prefix .. id)[1]
      local is_spoiled
      o, is_spoiled = ours(prefix .. id, packed, unpack_it)
      if is_spoiled then refuse(prefix .. id, 'the object that a call wrote which was cut off') end
    end
    local name_member, object_member
    if index_object == '' then
      if o then name_member = o[ITEM_NAMESPACE] .. '/' .. o[ITEM_NAME] .. '\0' .. id end
    elseif o and o[BODY] then name_member, object_member = index_members(o, id) end
    -- Of an object that somebody took away meanwhile there is nothing to find, only a version to count.
    tell(c, name_member and letter or 'M', id, packed or '', name_member, object_member)
  end
  if was then c.entry[#c.entry + 1], c.entry[#c.entry + 2] = 'W', was end
  c.last, c.bytes = last, bytes
  return c
end

-- Sets of similar messages and token buckets live on from their last use; *score* '' leaves the index as it is. The call
-- that makes the note has the keys in c.member_keys; one that finishes it makes them of the members.
local function keep_alive(command, c)
  local _, index, set_prefix, bucket_prefix, set_life_ms, bucket_life_ms, subjects, score = unpack(command)
  local scored, known, call = {}, c and c.member_keys and c.member_keys[subjects], redis.call
  for n, member in ipairs(subjects) do
    local set = known and known[2 * n - 1] or set_prefix .. string.sub(member, 1, ID_CHARS)
    call('PEXPIRE', set, set_life_ms)
    call('PEXPIRE', known and known[2 * n] or bucket_prefix .. id_of(member), bucket_life_ms)
    scored[2 * n - 1], scored[2 * n] = score, member
  end
  if score == '' then return end
  for low = 1, #scored, MANY do redis.call('ZADD', index, unpack(scored, low, math.min(low + MANY - 1, #scored))) end
end

-- What was written has to go some day.
local function expire_later(command, c)
  local _, index, score = unpack(command)
  local scored, ids = {}, c and c.written or {}
  for n = 1, #ids do scored[2 * n - 1], scored[2 * n] = score, ids[n] end
  for low = 1, #scored, MANY do redis.call('ZADD', index, unpack(scored, low, math.min(low + MANY - 1, #scored))) end
end

-- Acknowledges all that *group* has pending up to *target*, which `trim` chooses so that it is not too much for one call.
local function release_pending(command)
  local _, incoming, group, target = unpack(command)
  while true do
    local ids = {}
    for i, p in ipairs(redis.call('XPENDING', incoming, group, '-', target, MANY)) do ids[i] = p[1] end
    if #ids == 0 then return end
    redis.call('XACK', incoming, group, unpack(ids))
  end
end

-- Makes an empty stream: the entry is trimmed by the command that adds it, and the stream forgets its id. A group with
-- MKSTREAM that is destroyed afterwards would do, too, but then workers would need the right to destroy groups.
local function make_stream(command)
  local _, incoming = unpack(command)
  if redis.call('EXISTS', incoming) == 0 then redis.call('XADD', incoming, 'MAXLEN', 0, '0-1', '', '') end
  if last_id(incoming) == '0-1' then
    redis.call('XSETID', incoming, '0-0', 'ENTRIESADDED', 0, 'MAXDELETEDID', '0-0')
  end
end

local function make_group(command)
  local _, incoming, group, floor = unpack(command)
  for _, info in ipairs(redis.call('XINFO', 'GROUPS', incoming)) do
    if info[2] == group then return end
  end
  redis.call('XGROUP', 'CREATE', incoming, group, floor)
end

-- *finishing*: the command may have been done before.
local function perform(command, finishing, c)
  local verb = command[1]
  if verb == 'LIVES' then keep_alive(command, c)
  elseif verb == 'DUE' then expire_later(command, c)
  elseif verb == 'RELEASE' then release_pending(command)
  elseif verb == 'BURY' then redis.call('XADD', unpack(command, 2))
  elseif verb == 'STREAM' then make_stream(command)
  elseif verb == 'GROUP' then make_group(command)
  elseif verb == 'APPEND' then append_replayed(command, finishing)
  else redis.call(unpack(command)) end
end

local function check_types(c, steps)
  if c and c.last >= c.first then check_type(c.key, 'stream') end
  if c and (#c.named > 0 or #c.unnamed > 0) then
    if not typed[c.index_name] then check_type(c.index_name, 'zset') end
    if c.index_object ~= '' then check_type(c.index_object, 'zset') end
  end
  for _, command in ipairs(steps) do
    local verb, key = command[1], command[2]
    local wanted = TYPES[verb]
    if verb == 'XGROUP' then key = command[3] end
    if wanted ~= 'any' and not typed[key] then
      check_type(key, wanted)
      typed[key] = true
    end
  end
end

-- Writes *strings* (key, value, …) and the changes *c* (nil: none), then does *steps*; what is refused is done later.
-- The caller has finished what stood in *note*.
local function commit(note, strings, c, steps)
  steps[#steps + 1] = counting_spoiled()
  check_types(c, steps)
  local noted = { steps }
  if c and c.last >= c.first then
    noted[2] = {
      'CHANGES', c.key, c.version_key, c.first, c.last, c.at, c.bytes, c.prefix, c.index_name, c.index_object,
      c.noted, c.was or false,
    }
    if c.was then c.entry[#c.entry + 1], c.entry[#c.entry + 2] = 'W', c.was end
  end
  strings[#strings + 1], strings[#strings + 2] = note, cmsgpack.pack(noted)
  redis.call('MSET', unpack(strings))
  if noted[2] then write_changes(c) end
  for _, command in ipairs(steps) do perform(command, false, c) end
  redis.call('DEL', note)
end

-- Returns whether *entry* is the one that *command* buries; another burial may have been given its id meanwhile.
local function is_buried(entry, command)
  if not entry then return false end
  local fields, planned = fields_of(entry), {}
  for n = 4, #command, 2 do planned[command[n]] = command[n + 1] end
  return fields.id == planned.id and fields.group == planned.group and fields.b == planned.b
end

-- Buries under an id chosen beforehand, or under the next one if another burial came between. An entry that was discarded
-- or replayed since the call was cut off comes back: seen twice, not lost.
local function late_burials(steps)
  local moved, kept, lasts = false, {}, {}
  for _, command in ipairs(steps) do
    local again = command[1] ~= 'BURY'
    if not again then
      local dead, id = command[2], command[3]
      again = not is_buried(redis.call('XRANGE', dead, id, id)[1], command)
      local last = lasts[dead] or last_id(dead)
      if again and not entry_before(last, id) then
        command[3], moved = id_after(last), true
      end
      if again then lasts[dead] = command[3] end
    end
    if again then kept[#kept + 1] = command end
  end
  return kept, moved
end

-- Returns whether *steps* can be done at all; what it is that they would do is not looked at.
local function are_steps(steps)
  if type(steps) ~= 'table' then return false end
  for _, command in ipairs(steps) do
    if type(command) ~= 'table' or not TYPES[command[1]] then return false end
    for n = 2, #command do
      local is_list = command[1] == 'LIVES' and n == 7
      if is_list ~= (type(command[n]) == 'table') or type(command[n]) == 'boolean' then return false end
    end
    if #command < (command[1] == 'LIVES' and 8 or 2) then return false end
  end
  return true
end

-- Does what a call that was cut off has left to do; *text* is what the note holds. Returns whether there was something.
local function finish(note, text)
  if not text then return false end
  local ok, noted = pcall(cmsgpack.unpack, text)
  if not ok or type(noted) ~= 'table' or not are_steps(noted[1]) then refuse(note, 'a note') end
  local c = nil
  if noted[2] then
    ok, c = pcall(noted_changes, noted[2])
    if not ok and type(c) == 'table' then error(c) end -- of Redis, not of the note
    if not ok then refuse(note, 'a note (' .. tostring(c) .. ')') end
  end
  check_types(c, noted[1])
  local steps, moved = late_burials(noted[1])
  if moved then redis.call('SET', note, cmsgpack.pack({ steps, noted[2] })) end
  if c then write_changes(c) end
  for _, command in ipairs(steps) do perform(command, true, c) end
  redis.call('DEL', note)
  return true
end

-- Reads and finishes a note, for functions that have nothing else to read with it.
local function finish_noted(note)
  local text = redis.call('MGET', note)[1]
  if not text and redis.call('EXISTS', note) == 1 then refuse(note, 'a note') end
  return finish(note, text)
end

-- Keeps the stream of *c* within *bound* bytes, looked at whenever so many more were added; and, where there is no
-- memory for more, no longer than it is.
local LOOK_EVERY_BYTES = 65536

local function step_within(steps, c, bound, full)
  if c.last < c.first then return end
  check_type(c.key, 'stream')
  if full then return step(steps, 'XTRIM', c.key, 'MAXLEN', redis.call('XLEN', c.key)) end
  if math.floor(c.bytes / LOOK_EVERY_BYTES) == math.floor(c.at / LOOK_EVERY_BYTES) then return end
  local id = kept_from(c.key, c.bytes, bound)
  if id then step(steps, 'XTRIM', c.key, 'MINID', '~', id) end
end
