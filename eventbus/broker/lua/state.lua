-- Reads the state for `correlate_and_store`, with as few commands as possible; each string is unpacked once.
-- Exports: new_state

-- Returns two readers of keys, and their strings by the place of the key.
local function new_reader(keys)
  local packed = {}

  -- Reads consecutive keys.
  local function read(first, last)
    local missing = {}
    for low = first, last, MANY do
      local high = math.min(low + MANY - 1, last)
      local got = redis.call('MGET', unpack(keys, low, high))
      for i = low, high do
        local text = got[i - low + 1]
        packed[i] = text
        if not text then missing[#missing + 1] = keys[i] end
      end
    end
    note_other_types(missing)
  end

  local function read_each(places)
    local missing = {}
    for low = 1, #places, MANY do
      local part = {}
      for n = low, math.min(low + MANY - 1, #places) do part[#part + 1] = keys[places[n]] end
      local got = redis.call('MGET', unpack(part))
      for n = 1, #part do
        packed[places[low + n - 1]] = got[n]
        if not got[n] then missing[#missing + 1] = part[n] end
      end
    end
    note_other_types(missing)
  end

  return read, read_each, packed
end

-- Returns the state under the keys: each table is unpacked once and changed in place. *places*: the place before each group
-- of keys.
function new_state(keys, places, index_name)
  local read, read_each, packed = new_reader(keys)
  local sources_at, events_at = places.sources, places.events
  local sources, used_sources, objects, used_objects, names, numbers = {}, {}, {}, {}, {}, {}

  -- Missing keys were checked for another type when they were read.
  local function unpacked(i, unpack_it)
    local value, is_corrupt = unpack_it(packed[i])
    if is_corrupt then note_corrupt(keys[i]) end
    return value
  end

  local function source(n)
    local t = sources[n]
    if not t then
      t = packed[sources_at + n] and unpacked(sources_at + n, unpack_source) or new_source()
      sources[n] = t
    end
    return t
  end

  -- Events first, then aggregates and reports.
  local function object(n)
    local r = objects[n]
    if r then return r end
    local i = events_at + n
    if packed[i] == nil then read_each({ i }) end
    r = new_object(packed[i] and unpacked(i, unpack_event), packed[i] and true or false)
    objects[n] = r
    used_objects[#used_objects + 1] = n
    return r
  end

  -- Returns the number of the object with *id*, which is none of KEYS: only the set of a series names it. *is_new*: it is not
  -- read.
  local function number_of(id, is_new)
    local n = numbers[id]
    if not n then
      keys[#keys + 1] = prefix_of(keys[events_at + 1]) .. id
      n = #keys - events_at
      if is_new then packed[#keys] = false end
      numbers[id] = n
    end
    return n
  end

  local function free_name(namespace, name, n)
    local full_name = namespace .. '/' .. name
    local taken = names[full_name]
    if not taken then
      local low, high = '[' .. full_name .. '\0', '(' .. full_name .. '\1'
      local members = redis.pcall('ZRANGEBYLEX', index_name, low, high)
      typed[index_name] = true
      local member = members[1] or members.err and ask('ZRANGEBYLEX', index_name, low, high)[1]
      taken = member and id_of(member) ~= id_of(keys[events_at + n])
    else taken = taken ~= n end
    if taken then
      -- A hash, because an id has characters that a name must not have.
      name = name .. '.' .. sub(redis.sha1hex(id_of(keys[events_at + n])), 1, 8)
      full_name = namespace .. '/' .. name
    end
    names[full_name] = n
    return name
  end

  -- Reads the keys that every event needs, and those that are probably written: aggregates of full sets, reports of buckets
  -- that have suppressed events, and series that have not ended at *at_ms*, the time of the first batch.
  local function read_all(subjects, max_events, at_ms)
    if places.events_end <= sources_at then return end
    read(sources_at + 1, places.events_end)
    local more, listed = {}, {}
    local function need(place)
      if not listed[place] then
        listed[place] = true
        more[#more + 1] = place
      end
    end
    for s = 0, #subjects - 1, SUBJECT_FIELDS do
      local n, exempt = subjects[s + STATE], subjects[s + EXEMPT]
      local known = packed[sources_at + n] and source(n)
      local set = known and known_set(known, subjects[s + SET])
      if exempt == SERIES then
        if set and set[SERIES_ID] and not series_ended(set[SIMILAR_LAST], at_ms) then
          need(events_at + number_of(set[SERIES_ID]))
        end
      else
        if set and #set > max_events then need(places.events_end + subjects[s + AGGREGATE]) end
        if known and exempt ~= 1 and known[SUPPRESSED] then need(places.events_end + subjects[s + REPORT]) end
      end
    end
    if #more > 0 then read_each(more) end
  end

  return {
    read_all = read_all, packed = packed, sources = sources, objects = objects, used_objects = used_objects,
    used_sources = used_sources, free_name = free_name, object = object, number_of = number_of,
    source_id = function(n) return id_of(keys[sources_at + n]) end,
    similar = function(n, tag)
      used_sources[n] = true
      return set_of(sources[n] or source(n), tag)
    end,
    bucket = function(n) return sources[n] or source(n) end,
  }
end
