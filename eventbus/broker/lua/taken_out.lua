-- How an event goes: what remove_event and expire share.

-- Adds the change that event *o* is gone, and puts what stays of it into *strings*, *steps* and *forget*. Returns whether
-- a count stays.
local function take_out(c, strings, steps, forget, o, key, forget_at)
  local id = id_of(key)
  local name_member, object_member = index_members(o, id)
  local counts = o[FORM] ~= 'w' and pack_counts(o)
  o[RV], o[WRITTEN], o[HELD] = c.last + 1, false, false
  tell(c, 'D', id, cmsgpack.pack(o), name_member, object_member)
  if counts then
    strings[#strings + 1], strings[#strings + 2] = key, counts
    forget[#forget + 1], forget[#forget + 2] = forget_at, id
  else
    step(steps, 'DEL', key)
  end
  return counts ~= false
end
