-- How every function writes. Redis does not undo a function: if the server rejects its third write, for a missing right or
-- another type, the first two stay. Therefore a call has these steps:
--   1. Read and decide. Choose every id, version and number to be written. Nothing is written yet.
--   2. `check_types` of all keys to be written. From here on, only a missing right can reject a write.
--   3. The commit: ONE MSET of all changed strings (objects, sets, buckets) and of the note, which has the remaining writes.
--   4. The remaining writes: entry of `changes`, members of indexes, version of the kind (`write_changes`); then the steps in
--      their order, such as counters, expiry times and acknowledgements (`perform`).
--   5. DEL of the note.
--
--   the call ends   Redis has                       then
--   before 3        no change                       the caller may repeat the call
--   during 4, 5     the new strings, and the note   the next call for the same kind, group or sink first does 4 and 5
-- again
--                                                   (`finish`), so no call sees half of the writes
--
-- Step 4 can be repeated, because each write is idempotent:
--   entry of `changes`   its id is its version; XADD rejects an id that exists (`add_entry`)
--   ZADD, ZREM, HSET, HDEL, HSETNX, PEXPIRE, XACK, XDEL, XTRIM   set absolute values: a counter is set, not raised
--   BURY                 `finish` skips it if it is done; if another dead letter has this id, `finish` uses the next
-- free id
--   STREAM, GROUP, RELEASE, APPEND functions below and in incoming.lua; they look before they write
-- For each change, a note has a letter and an id. `finish` reads the object from its string, which no call changes
-- before. Each kind, group and sink has its own note, and roles may write the note if they may write
-- that kind.
-- c, everywhere in this file: the changes of this call, made by `new_changes` in objects.lua.
-- Exports: check_types, commit, finish, finish_noted, refuse, step, step_each, step_within

-- The commands of a note, and the type of the key of each. Those that are not commands of Redis are below.
local TYPES = {
  XADD = 'stream', XACK = 'stream', XDEL = 'stream', XTRIM = 'stream', XGROUP = 'stream', RELEASE = 'stream',
  BURY = 'stream', STREAM = 'stream', GROUP = 'stream', APPEND = 'stream', ZADD = 'zset', ZREM = 'zset',
  HSET = 'hash', HDEL = 'hash', HSETNX = 'hash', PEXPIRE = 'any', DEL = 'any', LIVES = 'any', DUE = 'zset', CHANGES = 'any',
}

-- Adds a command to the note. A command costs more than a member, and is one more line of the AOF.
function step(steps, ...)
  steps[#steps + 1] = { ... }
end

-- Adds one command with a list of members after the arguments; with an empty list, nothing.
function step_each(steps, list, ...)
  for low = 1, #list, MANY do
    local command = { ... }
    for n = low, math.min(low + MANY - 1, #list) do command[#command + 1] = list[n] end
    steps[#steps + 1] = command
  end
end

-- Adds the entry of *c*, unless it exists. If a foreign entry follows it, the version jumps over that: readers list again,
-- and find everything.
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

-- Removals from an index come first: a replaced object is added again under the same name.
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

-- The remaining writes of an interrupted call are stored only in its note; without them its events are counted twice or are
-- never listed. Another corrupt string counts as missing. A corrupt note does not: it stops all calls of its kind.
function refuse(key, wanted)
  error({ err = 'WRONGTYPE eventbus: ' .. key .. ' is not ' .. wanted })
end

-- Returns the changes of a note, with the objects as they are stored now: no object of the kind was written since.
local function noted_changes(noted)
  local _, key, version_key, first, last, at, bytes, prefix, index_name, index_object, changes, was = unpack(noted, 1, 12)
  local c = new_changes(key, version_key, first - 1, at, prefix, index_name, index_object)
  for n = 1, #changes, 2 do
    local letter, id = string.sub(changes[n], 1, 1), string.sub(changes[n], 2)
    local unpack_it, packed, o = index_object ~= '' and unpack_event or unpack_item, changes[n + 1], nil
    if packed then o = unpack_it(packed)
    else
      packed = redis.call('MGET', prefix .. id)[1]
      local is_corrupt
      o, is_corrupt = unpack_key(prefix .. id, packed, unpack_it)
      if is_corrupt then refuse(prefix .. id, 'the object that an interrupted call wrote') end
    end
    local name_member, object_member
    if index_object == '' then
      if o then name_member = o[ITEM_NAMESPACE] .. '/' .. o[ITEM_NAME] .. '\0' .. id end
    elseif o and o[BODY] then name_member, object_member = index_members(o, id) end
    -- If the object was deleted, only advance the version.
    add_change(c, name_member and letter or 'M', id, packed or '', name_member, object_member)
  end
  if was then c.entry[#c.entry + 1], c.entry[#c.entry + 2] = 'W', was end
  c.last, c.bytes = last, bytes
  return c
end

-- Extends the lives of the states of sources from their last use. The call that writes the note has their keys in
-- c.source_keys; a call that finishes it computes them from the ids.
local function keep_alive(command, c)
  local _, prefix, life_ms, ids = unpack(command)
  local known, call = c and c.source_keys or {}, redis.call
  for n = 1, #ids do call('PEXPIRE', known[n] or prefix .. ids[n], life_ms) end
end

-- Schedules the expiry of the written events.
local function expire_later(command, c)
  local _, index, score = unpack(command)
  local scored, ids = {}, c and c.written or {}
  for n = 1, #ids do scored[2 * n - 1], scored[2 * n] = score, ids[n] end
  for low = 1, #scored, MANY do redis.call('ZADD', index, unpack(scored, low, math.min(low + MANY - 1, #scored))) end
end

-- Acknowledges all pending entries of *group* up to *target*, which `trim` chooses so that one call can do it.
local function release_pending(command)
  local _, incoming, group, target = unpack(command)
  while true do
    local ids = {}
    for i, p in ipairs(redis.call('XPENDING', incoming, group, '-', target, MANY)) do ids[i] = p[1] end
    if #ids == 0 then return end
    redis.call('XACK', incoming, group, unpack(ids))
  end
end

-- Creates an empty stream: the command that adds an entry also trims it, then XSETID resets its last id. With MKSTREAM and
-- a group that is destroyed afterwards, workers would need the right to destroy groups.
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

-- *finishing*: the command may have been executed before.
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

function check_types(c, steps)
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

-- Writes *strings* (key, value, …) and the changes *c* (nil: none), then executes *steps*. Steps that the server rejects
-- stay in the note, for `finish`. The caller has finished the note under *note*.
function commit(note, strings, c, steps)
  steps[#steps + 1] = count_corrupt()
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

-- Returns whether *entry* is the dead letter of *command*; another one may have taken its id meanwhile.
local function is_buried(entry, command)
  if not entry then return false end
  local fields, planned = fields_of(entry), {}
  for n = 4, #command, 2 do planned[command[n]] = command[n + 1] end
  return fields.id == planned.id and fields.group == planned.group and fields.b == planned.b
end

-- Buries under the id of the note, or under the next one if another dead letter has taken it. An entry that was discarded or
-- replayed since the call was interrupted comes back: seen twice, not lost.
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

-- Returns whether *steps* can be executed; their effect is not checked.
local function are_steps(steps)
  if type(steps) ~= 'table' then return false end
  for _, command in ipairs(steps) do
    if type(command) ~= 'table' or not TYPES[command[1]] then return false end
    for n = 2, #command do
      local is_list = command[1] == 'LIVES' and n == 4
      if is_list ~= (type(command[n]) == 'table') or type(command[n]) == 'boolean' then return false end
    end
    if #command < (command[1] == 'LIVES' and 4 or 2) then return false end
  end
  return true
end

-- Finishes an interrupted call; *text* is the value of its note. Returns whether there was one.
function finish(note, text)
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

-- Reads and finishes a note, for functions that read no other string with it.
function finish_noted(note)
  local text = redis.call('MGET', note)[1]
  if not text and redis.call('EXISTS', note) == 1 then refuse(note, 'a note') end
  return finish(note, text)
end

local CHECK_EVERY_BYTES = 65536

-- Keeps the stream of *c* within *bound* bytes, checked after each CHECK_EVERY_BYTES; if the memory is *full*, it does not
-- become longer.
function step_within(steps, c, bound, full)
  if c.last < c.first then return end
  check_type(c.key, 'stream')
  if full then return step(steps, 'XTRIM', c.key, 'MAXLEN', redis.call('XLEN', c.key)) end
  if math.floor(c.bytes / CHECK_EVERY_BYTES) == math.floor(c.at / CHECK_EVERY_BYTES) then return end
  local id = kept_from(c.key, c.bytes, bound)
  if id then step(steps, 'XTRIM', c.key, 'MINID', '~', id) end
end
