-- Counts, written as absolute numbers, since the steps of a note may be done twice.

-- Adds *raised* (field -> n, those above 0) to what *hash* holds, as one HSET. With the id of a *bus*, that is asked for in
-- the same round: where the partition belongs to another one, nothing is done.
local function step_raised(steps, hash, raised, bus)
  local fields, pairs_of = {}, {}
  for field, n in pairs(raised) do
    if n ~= 0 then fields[#fields + 1] = field end
  end
  if #fields == 0 then return end
  table.sort(fields) -- what a function writes must not hang on the order of a Lua table
  if (bus or '') ~= '' then fields[#fields + 1] = 'bus' end
  local found = ask('HMGET', hash, unpack(fields))
  typed[hash] = true
  if fields[#fields] == 'bus' and table.remove(fields) and found[#fields + 1] ~= bus then
    error({ err = 'OTHERBUS eventbus: ' .. hash .. ' belongs to another bus' })
  end
  for n, field in ipairs(fields) do
    pairs_of[2 * n - 1] = field
    pairs_of[2 * n] = integer_text((tonumber(found[n] or '0') or 0) + raised[field])
  end
  step(steps, 'HSET', hash, unpack(pairs_of))
end

-- Counts by source. A limited number of sources of each letter have a name; the others are counted together.
local NAMED = 500

-- Drops the names of the half with the smallest counts. A source that gets a name later is credited, under the letter in
-- lower case, with the largest count dropped. So a source with more than a 250th of all counts ends with a name and keeps
-- it, however many others come and go (Misra and Gries, frequent items). Counts are shown without credit.
local function drop_names(values, gone, what)
  local rows, other = {}, what .. '\0other\0\0\0'
  for field, text in pairs(values) do
    if string.sub(field, 1, 2) == what .. '\0' and field ~= other then
      local credit, n = string.lower(what) .. string.sub(field, 2), tonumber(text) or 0
      rows[#rows + 1] = { field = field, credit = credit, n = n, rank = n + (tonumber(values[credit] or '0') or 0) }
    end
  end
  if #rows < NAMED then return #rows end

  table.sort(rows, function(one, two)
    if one.rank ~= two.rank then return one.rank > two.rank end
    return one.field < two.field
  end)
  local kept, together = NAMED / 2, 0
  for r = kept + 1, #rows do
    together = together + rows[r].n
    for _, field in ipairs({ rows[r].field, rows[r].credit }) do values[field], gone[field] = nil, true end
  end
  values[other] = integer_text((tonumber(values[other] or '0') or 0) + together)
  values['credit\0' .. what] = integer_text(rows[kept + 1].rank)
  return kept
end

-- Adds *counts* (letter -> subject -> n) to *hash*. Only where a name is to be dropped all of it is read.
local function step_by_subject(steps, hash, counts)
  local asked = {}
  for what, by_subject in pairs(counts) do
    for subject in pairs(by_subject) do asked[#asked + 1] = what .. '\0' .. subject end
    if next(by_subject) then
      asked[#asked + 1], asked[#asked + 2] = 'names\0' .. what, 'credit\0' .. what
    end
  end
  if #asked == 0 then return end
  table.sort(asked)
  local before, values, gone, whole = {}, {}, {}, false
  for low = 1, #asked, MANY do
    local found = ask('HMGET', hash, unpack(asked, low, math.min(low + MANY - 1, #asked)))
    for n, text in ipairs(found) do before[asked[low + n - 1]] = text or nil end
  end
  for field, text in pairs(before) do values[field] = text end

  for n = 1, #asked do
    local what, subject = string.match(asked[n], '^(%u)%z(.*)$')
    if what then
      local field = asked[n]
      if not values[field] then
        local names = tonumber(values['names\0' .. what] or NAMED) or NAMED
        if names >= NAMED then
          if not whole then
            local found = ask('HGETALL', hash)
            for i = 1, #found, 2 do
              before[found[i]] = found[i + 1]
              if values[found[i]] == nil and not gone[found[i]] then values[found[i]] = found[i + 1] end
            end
            whole = true
          end
          names = drop_names(values, gone, what)
        end
        values['names\0' .. what] = integer_text(names + 1)
        local credit = values['credit\0' .. what]
        if credit then values[string.lower(what) .. '\0' .. subject] = credit end
      end
      values[field], gone[field] = integer_text((tonumber(values[field] or '0') or 0) + counts[what][subject]), nil
    end
  end

  local dropped, set = {}, {}
  for field in pairs(gone) do
    if not values[field] and before[field] then dropped[#dropped + 1] = field end
  end
  for field, text in pairs(values) do
    if before[field] ~= text then set[#set + 1], set[#set + 2] = field, text end
  end
  table.sort(dropped)
  step_each(steps, dropped, 'HDEL', hash)
  step_each(steps, set, 'HSET', hash)
end

-- Kinds of occurrences of one minute that have a name; the others are `other`.
local MINUTE_NAMES = 200

-- Adds *counts* (field -> n) to the hash of one minute, which lives for *life_ms* from its first. Where there is no memory
-- no minute is begun.
local function step_minute(steps, hash, counts, life_ms, full)
  local fields, new, set = {}, false, {}
  for field in pairs(counts) do fields[#fields + 1] = field end
  table.sort(fields)
  fields[#fields + 1] = 'other'
  local found = ask('HMGET', hash, unpack(fields))
  typed[hash] = true
  for n = 1, #fields - 1 do new = new or not found[n] end
  local had_names, other = new and ask('HLEN', hash) or 0, 0
  local names = had_names
  if full and new and had_names == 0 then return end
  for n = 1, #fields - 1 do
    local had = found[n]
    if not had and names >= MINUTE_NAMES then other = other + counts[fields[n]]
    else
      if not had then names = names + 1 end
      set[#set + 1] = fields[n]
      set[#set + 1] = integer_text((tonumber(had or '0') or 0) + counts[fields[n]])
    end
  end
  if other > 0 then
    set[#set + 1] = 'other'
    set[#set + 1] = integer_text((tonumber(found[#fields] or '0') or 0) + other)
  end
  step_each(steps, set, 'HSET', hash)
  if new and had_names == 0 then step(steps, 'PEXPIRE', hash, life_ms) end
end

-- The dead letter. An entry's `at` is that of the one before it, and its length; so what is queued is the difference
-- between the ends, and no counter beside the stream can be wrong.
local function new_burials(dead, now_ms)
  local last, at = '0-0', 0
  check_type(dead, 'stream')
  if redis.call('EXISTS', dead) == 1 then
    last = last_id(dead)
    local entry = ask('XREVRANGE', dead, '+', '-', 'COUNT', 1)[1]
    local fields = entry and fields_of(entry)
    at = fields and (tonumber(fields.at or '') or 0) + #(fields.b or '') or 0
  end
  return { dead = dead, last = last, at = at, now = integer_text(now_ms) .. '-0', raised = {} }
end

-- One more burial; *more*: fields behind those that every one has, before the bytes.
local function step_burial(steps, b, group, id, cause, deaths, bytes, more)
  b.last = entry_before(b.last, b.now) and b.now or id_after(b.last)
  local command = { 'BURY', b.dead, b.last, 'id', id, 'group', group, 'cause', cause, 'deaths', deaths,
    'at', integer_text(b.at) }
  for _, word in ipairs(more or {}) do command[#command + 1] = word end
  command[#command + 1], command[#command + 2] = 'b', bytes
  steps[#steps + 1] = command
  b.at = b.at + #bytes
  local field = 'buried:' .. group .. ':' .. cause
  b.raised[field] = (b.raised[field] or 0) + 1
end
