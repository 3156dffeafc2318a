-- Counters, written as absolute numbers, because the steps of a note may be executed twice.
-- Exports: new_burials, step_burial, step_by_subject, step_minute, step_raised

-- Adds *raised* (field -> n) to the counters of *hash*, as one HSET. With the id of a *bus*, the same read checks it: if the
-- partition belongs to another bus, the call fails.
function step_raised(steps, hash, raised, bus)
  local fields, pairs_of = {}, {}
  for field, n in pairs(raised) do
    if n ~= 0 then fields[#fields + 1] = field end
  end
  if #fields == 0 then return end
  table.sort(fields) -- the writes must not depend on the order of a Lua table
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

-- Counters by source. A limited number of sources of each letter have a name; the others are counted together.
local NAMED = 500

-- Drops the names of the half with the smallest counts. A source that gets a name later gets a credit, under the letter in
-- lower case: the largest dropped count. So a source with more than a 250th of all counts gets a name and keeps it, however
-- many other sources appear (Misra and Gries, frequent items). Counts are shown without the credit.
local function drop_names(values, gone, letter)
  local rows, other = {}, letter .. '\0other\0\0\0'
  for field, text in pairs(values) do
    if string.sub(field, 1, 2) == letter .. '\0' and field ~= other then
      local credit, n = string.lower(letter) .. string.sub(field, 2), tonumber(text) or 0
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
  values['credit\0' .. letter] = integer_text(rows[kept + 1].rank)
  return kept
end

-- Adds *counts* (letter -> subject -> n) to *hash*. The whole hash is read only if names must be dropped.
function step_by_subject(steps, hash, counts)
  local asked = {}
  for letter, by_subject in pairs(counts) do
    for subject in pairs(by_subject) do asked[#asked + 1] = letter .. '\0' .. subject end
    if next(by_subject) then
      asked[#asked + 1], asked[#asked + 2] = 'names\0' .. letter, 'credit\0' .. letter
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
    local letter, subject = string.match(asked[n], '^(%u)%z(.*)$')
    if letter then
      local field = asked[n]
      if not values[field] then
        local names = tonumber(values['names\0' .. letter] or NAMED) or NAMED
        if names >= NAMED then
          if not whole then
            local found = ask('HGETALL', hash)
            for i = 1, #found, 2 do
              before[found[i]] = found[i + 1]
              if values[found[i]] == nil and not gone[found[i]] then values[found[i]] = found[i + 1] end
            end
            whole = true
          end
          names = drop_names(values, gone, letter)
        end
        values['names\0' .. letter] = integer_text(names + 1)
        local credit = values['credit\0' .. letter]
        if credit then values[string.lower(letter) .. '\0' .. subject] = credit end
      end
      values[field], gone[field] = integer_text((tonumber(values[field] or '0') or 0) + counts[letter][subject]), nil
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

-- Kinds of occurrences of one minute with a name; the others are counted as `other`.
local MINUTE_NAMES = 200

-- Adds *counts* (field -> n) to the hash of one minute, which lives for *life_ms* from its first count. If the memory is
-- full, no new minute is begun.
function step_minute(steps, hash, counts, life_ms, full)
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

-- The dead letter. The `at` of an entry is that of the entry before it plus its length. So the size of the stream is the
-- difference between its ends, without a separate counter.
function new_burials(dead, now_ms)
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

-- Adds a dead letter; *more*: fields between those of every dead letter and the bytes.
function step_burial(steps, b, group, id, cause, deaths, bytes, more)
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
