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
  local sets_at, buckets_at, events_at = places.sets, places.buckets, places.events
  local similars, buckets, objects, used_objects, names = {}, {}, {}, {}, {}
  local used_sets, used_buckets = {}, {}

  -- Missing keys were checked for another type when they were read.
  local function unpacked(i, unpack_it)
    local value, is_corrupt = unpack_it(packed[i])
    if is_corrupt then note_corrupt(keys[i]) end
    return value
  end

  local function similar(n)
    local s = similars[n]
    if not s then
      s = packed[sets_at + n] and unpacked(sets_at + n, unpack_similar) or { nil, nil }
      similars[n] = s
    end
    return s
  end

  local function bucket(n)
    local s = buckets[n]
    if not s then
      s = packed[buckets_at + n] and unpacked(buckets_at + n, unpack_bucket) or { nil, nil }
      buckets[n] = s
    end
    return s
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

  -- Reads the keys that every event needs, and those that are probably written: aggregates of full sets, and reports of
  -- buckets that have suppressed events.
  local function read_all(subjects, max_events)
    if places.events_end <= sets_at then return end
    read(sets_at + 1, places.events_end)
    local more, listed = {}, {}
    local function need(n)
      if not listed[n] then
        listed[n] = true
        more[#more + 1] = places.events_end + n
      end
    end
    for s = 0, #subjects - 1, SUBJECT_FIELDS do
      local set, shared = subjects[s + SET], subjects[s + BUCKET]
      if packed[sets_at + set] and #similar(set) > max_events then need(subjects[s + AGGREGATE]) end
      if packed[buckets_at + shared] and subjects[s + EXEMPT] ~= 1 and bucket(shared)[SUPPRESSED] then
        need(subjects[s + REPORT])
      end
    end
    if #more > 0 then read_each(more) end
  end

  return {
    read_all = read_all, packed = packed, similars = similars, buckets = buckets, objects = objects,
    used_objects = used_objects, used_sets = used_sets, used_buckets = used_buckets, free_name = free_name,
    object = object,
    similar = function(n)
      used_sets[n] = true
      return similars[n] or similar(n)
    end,
    bucket = function(n)
      used_buckets[n] = true
      return buckets[n] or bucket(n)
    end,
  }
end
