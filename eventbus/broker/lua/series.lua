-- When a series of equal events (events.k8s.io) ends, and when its count is written. client-go uses timers of the process,
-- here they are those of a process that started at a full half hour: every worker decides the same at any time.
-- Exports: FINISH_MS, series_ended, series_end_ms, series_refresh_ms, series_last_ms

FINISH_MS = 360000
local REFRESH_MS = 1800000

-- Returns whether a series with its last event at *last_ms* has ended at *at_ms*: a full six minutes of the clock is over
-- that had no event in the six minutes before it.
function series_ended(last_ms, at_ms)
  return last_ms < at_ms - at_ms % FINISH_MS - FINISH_MS
end

-- Returns when it will have ended without another event.
function series_end_ms(last_ms)
  return last_ms - last_ms % FINISH_MS + 2 * FINISH_MS
end

-- Returns the next full half hour after *at_ms*: a series is written then, if nothing else is, so that it does not expire.
function series_refresh_ms(at_ms)
  return at_ms - at_ms % REFRESH_MS + REFRESH_MS
end

-- Returns when Redis received the last event of a stored series.
function series_last_ms(o)
  return o[SERIES_LAST] or 0
end
