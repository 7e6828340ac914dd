-- One access queue: a pass, then operations in order. See docs of the access queue for the laws;
-- `src/room.rs` is the same machine for one process, and both answer alike on the same traces.
--
-- KEYS  active, queue, seen, seq, rate, spent
-- ARGV  1 now (ms; '': the server's clock)   2 gateway
--       3 born  4 claimed  5 n               of the gateway's latest reply; 3 is '' before the first
--       6 version  7 capacity  8 count  9 per_s (0: no rate)  10 paused
--       11 active_ttl  12 grant_ttl  13 queue_ttl  14 max_waiting  15 method (f r p x)
--       16 opens  17 starts  18 ends         (0: none)
--       19.. operations, packed: see `script.rs`
-- Returns one string: header and answers, packed likewise.

local ACTIVE, QUEUE, SEEN, SEQ, RATE, SPENT = unpack(KEYS)
local call = redis.call

local EPOCH, GAP, GRACE, BOUND, WINDOW = 5000, 5000, 30000, 1000, 60000
local POLL_MIN, POLL_MAX, NEAR, FAR = 3000, 30000, 50, 5000
local CALLERS = 256
local OP = '<c1c22dddddddd'
local WAITS = { 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200 }

local now = tonumber(ARGV[1])
if not now then
  local time = call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local caller = 'g:' .. ARGV[2]
local active_ttl, grant_ttl, queue_ttl = tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13])
local max_waiting, method = tonumber(ARGV[14]), ARGV[15]
local opens, starts, ends = tonumber(ARGV[16]), tonumber(ARGV[17]), tonumber(ARGV[18])

-- The state's numbers. `about` says what this is, and is long on purpose: a hash with a value above
-- 64 bytes is kept as a table, in which fields are found at once.
local NAMES = {
  'born', 'n', 'last_pass', 'gap_from', 'resumed_at', 'owed', 'owed_until', 'flushed_at',
  'released_at', 'admitted', 'abandoned', 'tokens', 'at', 'cfg', 'capacity', 'count', 'per_s',
  'paused', 'random', 'granted', 'pace_count', 'pace_span', 'pace_at', 'waits', 'wait_sum', caller,
}
local was = call('HMGET', RATE, unpack(NAMES))
local v = {}
for i, name in ipairs(NAMES) do
  was[i] = tonumber(was[i]) or 0
  v[name] = was[i]
end
local new = v.born == 0

local inside, waiting = call('ZCARD', ACTIVE), call('ZCARD', QUEUE)
local seq, highest -- read when first needed; `highest` is forgotten when somebody leaves the line

if tonumber(ARGV[6]) > v.cfg then
  v.cfg, v.capacity, v.count = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
  v.per_s, v.paused = tonumber(ARGV[9]), tonumber(ARGV[10])
end

-- What newcomers and check-ins add is written in one go: a command for each costs more than the
-- sorted set's own work. `late`: who is in `late_queue`, all of them behind everybody else.
local late, late_queue, late_seen, queued, noted = {}, {}, {}, 0, 0

local function flush()
  if queued > 0 then
    call('ZADD', QUEUE, unpack(late_queue, 1, queued))
    late, queued = {}, 0
  end
  if noted > 0 then
    call('ZADD', SEEN, unpack(late_seen, 1, noted))
    noted = 0
  end
end

-- Where the visitors of this call stand in the line; false: nowhere. Asked for all at once.
local placed = {}

local function place_of(sid)
  if placed[sid] == nil then placed[sid] = tonumber(call('ZSCORE', QUEUE, sid)) or false end
  return placed[sid]
end

local function owed()
  return now < v.owed_until and v.owed or 0
end

local function ended()
  return ends ~= 0 and now >= ends
end

local function free()
  if (now >= v.born and now - v.born < EPOCH) or v.paused ~= 0 or now < starts or ended()
    or method == 'x' then
    return 0
  end
  local room = math.max(0, v.capacity - inside - owed())
  return v.per_s > 0 and math.min(room, math.floor(v.tokens)) or room
end

local function admit()
  if v.per_s > 0 then v.tokens = v.tokens - 1 end
  v.admitted = v.admitted + 1
  v.pace_count = v.pace_count + 1
end

local function take_order()
  if waiting == 0 then
    if method == 'f' then v.random = 0 elseif method == 'r' then v.random = 1 end
  end
end

-- How many of `sids` are in the sorted set `key`.
local function among(key, sids)
  local n = 0
  for _, score in ipairs(call('ZMSCORE', key, unpack(sids))) do
    if score then n = n + 1 end
  end
  return n
end

-- Everybody who was claimed and inside at the pass before gets at least a whole `active_ttl`.
local function extend(before)
  local til = now + active_ttl
  local sids = call('ZRANGEBYSCORE', ACTIVE, '(' .. string.format('%.0f', before),
    '(' .. string.format('%.0f', til))
  for from = 1, #sids, BOUND do
    local part = { unpack(sids, from, math.min(from + BOUND - 1, #sids)) }
    local granted = v.granted > 0 and call('ZMSCORE', SEEN, unpack(part)) or {}
    local pairs_ = {}
    for i, sid in ipairs(part) do
      if not granted[i] then
        pairs_[#pairs_ + 1] = til
        pairs_[#pairs_ + 1] = sid
      end
    end
    if #pairs_ > 0 then call('ZADD', ACTIVE, unpack(pairs_)) end
  end
end

local function dead(due)
  return now > math.max(due, v.resumed_at + GRACE) + queue_ttl
end

local function left_line(sid)
  if call('ZREM', QUEUE, sid) == 1 then
    waiting, highest, placed[sid] = waiting - 1, nil, false
  end
end

-- From the ticket to the promotion. Tickets of a draw say nothing of it.
local function note_wait(ticket)
  if v.random ~= 0 or ticket < starts * 1000 then return end
  local waited = math.max(0, now - math.floor(ticket / 1000))
  v.waits, v.wait_sum = v.waits + 1, v.wait_sum + waited
  local bucket = 1
  while WAITS[bucket] and WAITS[bucket] * 1000 < waited do bucket = bucket + 1 end
  call('HINCRBY', RATE, 'w' .. bucket, 1)
end

-- Gives free slots to the head of the line. True: stopped at the bound.
local function promote()
  for _ = 1, BOUND do
    if waiting == 0 or free() < 1 then return false end
    flush()
    local sid, ticket = unpack(call('ZPOPMIN', QUEUE))
    waiting, placed[sid] = waiting - 1, false
    if waiting == 0 then highest = nil end
    local due = tonumber(call('ZSCORE', SEEN, sid)) or 0
    if dead(due) then
      call('ZREM', SEEN, sid)
      v.abandoned = v.abandoned + 1
    else
      call('ZADD', ACTIVE, math.max(now, due) + grant_ttl, sid)
      inside, v.granted = inside + 1, v.granted + 1
      note_wait(tonumber(ticket))
      admit()
    end
  end
  return waiting > 0 and free() >= 1
end

-- The pass.

if new then v.born, v.last_pass, v.at = now, now, now end
if now >= v.owed_until then v.owed = 0 end
local before = v.last_pass
if now > before + GAP or now + GAP < before then
  local graced = before <= v.resumed_at + GRACE + queue_ttl
  v.gap_from = graced and math.min(v.gap_from, before) or before
  v.resumed_at = now
  extend(before)
end
v.last_pass, v.n = now, v.n + 1
-- A gateway that is not known is new, or was forgotten among very many.
local told = v[caller] > 0 and v[caller] or v.n - 1
local known = v[caller] > 0
if ARGV[3] ~= '' then
  local born, claimed, n = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
  local ours = born == v.born
  if not ours or n > told then
    v.owed = math.max(v.owed, claimed - (inside - v.granted))
    v.owed_until = now + active_ttl
    if ours then
      extend(before)
      v.resumed_at, v.tokens, v.at, v.n = now, 0, now, math.max(v.n, n + 1)
    end
  end
end
v[caller] = v.n
if not known and call('HLEN', RATE) > CALLERS + 64 then
  local fields, oldest, least = call('HGETALL', RATE), nil, math.huge
  for i = 1, #fields, 2 do
    local n = tonumber(fields[i + 1])
    if string.sub(fields[i], 1, 2) == 'g:' and n < least then oldest, least = fields[i], n end
  end
  if oldest then call('HDEL', RATE, oldest) end
end
if v.per_s > 0 then
  local burst = math.max(1, v.count / v.per_s)
  v.tokens = math.min(burst,
    v.tokens + math.max(0, now - v.at) * v.count / (v.per_s * 1000))
  v.at = now
end
if now > v.pace_at and v.pace_at ~= 0 then
  local keep = math.exp(-(now - v.pace_at) / WINDOW)
  v.pace_count = v.pace_count * keep
  v.pace_span = v.pace_span * keep + WINDOW * (1 - keep)
end
v.pace_at = now
if inside > 0 then
  local gone = call('ZRANGEBYSCORE', ACTIVE, '-inf', now)
  if #gone > 0 then
    for from = 1, v.granted > 0 and #gone or 0, BOUND do
      v.granted = v.granted
        - among(SEEN, { unpack(gone, from, math.min(from + BOUND - 1, #gone)) })
    end
    call('ZREMRANGEBYSCORE', ACTIVE, '-inf', now)
    inside = inside - #gone
  end
end
call('ZREMRANGEBYSCORE', SPENT, '-inf',
  '(' .. string.format('%.0f', now - math.max(active_ttl, queue_ttl + 90000)))
take_order()
local more = false
if dead(0) then
  local gone = call('ZRANGEBYSCORE', SEEN, '-inf', now - queue_ttl - 1, 'LIMIT', 0, BOUND + 1)
  more = table.remove(gone, BOUND + 1) ~= nil
  if #gone > 0 then
    if v.granted > 0 then v.granted = v.granted - among(ACTIVE, gone) end
    local abandoned = waiting > 0 and call('ZREM', QUEUE, unpack(gone)) or 0
    waiting, v.abandoned, highest = waiting - abandoned, v.abandoned + abandoned, nil
    call('ZREM', SEEN, unpack(gone))
  end
end
more = promote() or more

-- The operations. An answer is a letter and numbers.

local answers, answered, pack = {}, 0, struct.pack
local function answer(kind, ...)
  answered = answered + 1
  answers[answered] = pack('<c1' .. string.rep('d', select('#', ...)), kind, ...)
end

-- When the place of `sid` was used, and when it left; 0: never. Mostly nobody left lately.
local anybody_spent
local function spent(sid)
  if anybody_spent == nil then anybody_spent = call('EXISTS', SPENT) == 1 end
  if not anybody_spent then return 0, 0 end
  local at = call('ZMSCORE', SPENT, 'u:' .. sid, 'l:' .. sid)
  return tonumber(at[1]) or 0, tonumber(at[2]) or 0
end

local function spend(at, what)
  call('ZADD', SPENT, at, what)
  anybody_spent = true
end

local function inside_answer(sid, expiry, joined, left)
  if not left then
    local _
    _, left = spent(sid)
  end
  answer('a', math.max(now, left + 1, v.released_at + 1), expiry, joined)
end

-- A visitor inside, until `expiry`, makes a request: the slot is theirs for `active_ttl`.
local function claim(sid, expiry)
  local til = now + active_ttl
  if v.granted > 0 and call('ZREM', SEEN, sid) == 1 then
    v.granted = v.granted - 1
    spend(now, 'u:' .. sid)
    call('ZREM', SPENT, 'l:' .. sid)
    call('ZADD', ACTIVE, til, sid)
    return inside_answer(sid, til, 0, 0)
  end
  til = math.max(til, expiry)
  if til > expiry then call('ZADD', ACTIVE, til, sid) end
  inside_answer(sid, til, 0)
end

local function straight_in(sid)
  flush()
  left_line(sid)
  call('ZREM', SEEN, sid)
  spend(now, 'u:' .. sid)
  call('ZREM', SPENT, 'l:' .. sid)
  call('ZADD', ACTIVE, now + active_ttl, sid)
  inside = inside + 1
  inside_answer(sid, now + active_ttl, 1, 0)
end

-- Answers and returns true when nobody is let in at all.
local function closed()
  if method == 'x' or ended() then
    answer('c')
    return true
  end
  if now < opens then
    answer('o', opens)
    return true
  end
end

-- Tells `sid`, who is in the line, when to come again; returns what else it is told. `rank`: if it is
-- known.
local function check_in(sid, rank)
  rank = rank or call('ZRANK', QUEUE, sid) + 1
  local eta, pace = -1, nil
  if now < starts then
    eta, pace = starts - now, FAR
  else
    if v.pace_count >= 0.01 then
      eta = math.floor(rank * 1000 / (v.pace_count * 1000 / math.max(v.pace_span, 1000)))
    end
    pace = rank
  end
  local beyond = math.min(math.max(pace, NEAR), FAR) - NEAR
  local poll = POLL_MIN + math.floor(beyond * (POLL_MAX - POLL_MIN) / (FAR - NEAR))
  if eta >= 0 then poll = math.min(poll, math.floor(eta / 2)) end
  poll = math.max(poll, POLL_MIN)
  if noted >= 2 * BOUND then flush() end
  late_seen[noted + 1], late_seen[noted + 2], noted = now + poll, sid, noted + 2
  return rank, eta, poll
end

local function wait(sid, ticket, joined, rank)
  local eta, poll
  rank, eta, poll = check_in(sid, rank)
  local used, left = spent(sid)
  local issued = math.max(now, used + 1, left + 1, v.flushed_at + 1)
  answered = answered + 1
  answers[answered] = pack('<c1dddddddd', 'w', now, rank, issued, eta, poll, ticket, joined,
    now < starts and 1 or 0)
end

-- The ticket of a place that is fresh and not refused.
local function returning(sid, issued, ticket, due)
  if ticket == 0 then return end
  local lapses = due + queue_ttl
  if now > lapses and (now > v.resumed_at + GRACE + queue_ttl or lapses < v.gap_from) then return end
  local used, left = spent(sid)
  if issued <= math.max(used, left, v.flushed_at) then return end
  return ticket
end

-- Into the line with `ticket`, and once more through the promotion. True: it is inside now.
local function back_in_line(sid, ticket)
  flush()
  call('ZADD', QUEUE, ticket, sid)
  waiting, highest, placed[sid] = waiting + 1, nil, ticket
  check_in(sid)
  more = promote() or more
  return tonumber(call('ZSCORE', ACTIVE, sid))
end

-- `random`: the visitor's ticket when the order is one; `lot`: before the start.
local function new_ticket(random, lot)
  if v.random ~= 0 then return random end
  if now < starts then return lot end
  seq = seq or tonumber(call('GET', SEQ)) or 0
  if not highest then
    highest = waiting > 0 and tonumber(call('ZRANGE', QUEUE, -1, -1, 'WITHSCORES')[2]) or 0
  end
  seq = math.max(seq + 1, now * 1000, highest + 1)
  highest = seq
  return seq
end

local function enter(sid, join, random, lot, issued, ticket, due)
  if late[sid] then flush() end
  local expiry = inside > 0 and tonumber(call('ZSCORE', ACTIVE, sid))
  if expiry then return claim(sid, expiry) end
  if method == 'p' then
    v.admitted = v.admitted + 1
    return straight_in(sid)
  end
  if closed() then return end
  local place = waiting > 0 and place_of(sid)
  if place then return wait(sid, place, 0) end
  place = returning(sid, issued, ticket, due)
  if place then
    expiry = back_in_line(sid, place)
    if expiry then return claim(sid, expiry) end
    return wait(sid, place, 0)
  end
  if join == 0 then return answer('g') end
  if waiting == 0 and free() >= 1 then
    admit()
    return straight_in(sid)
  end
  if waiting >= max_waiting then return answer('f') end
  place = new_ticket(random, lot)
  waiting, placed[sid] = waiting + 1, place
  if place ~= highest then
    flush()
    call('ZADD', QUEUE, place, sid)
    return wait(sid, place, 1)
  end
  -- A ticket that is the time of coming is the last.
  if queued >= 2 * BOUND then flush() end
  late_queue[queued + 1], late_queue[queued + 2], queued = place, sid, queued + 2
  late[sid] = true
  wait(sid, place, 1, waiting)
end

local function refused(sid, issued, expires)
  local _, left = spent(sid)
  return issued <= math.max(left, v.released_at) or expires <= now
end

-- A request, poll or stream with an admission that is not refused.
local function keep(sid)
  local expiry = inside > 0 and tonumber(call('ZSCORE', ACTIVE, sid))
  if expiry then return claim(sid, expiry) end
  flush()
  left_line(sid)
  call('ZREM', SEEN, sid)
  spend(now, 'u:' .. sid)
  v.owed = math.max(0, v.owed - 1)
  call('ZADD', ACTIVE, now + active_ttl, sid)
  inside = inside + 1
  inside_answer(sid, now + active_ttl, 0)
end

local function poll(sid, issued, ticket, due, a_issued, a_expires)
  if a_expires ~= 0 and not refused(sid, a_issued, a_expires) then return keep(sid) end
  if method == 'p' or (inside > 0 and call('ZSCORE', ACTIVE, sid)) then return answer('y') end
  if closed() then return end
  if late[sid] then flush() end
  local place = waiting > 0 and place_of(sid)
  if not place then
    place = returning(sid, issued, ticket, due)
    if not place then return answer('g') end
    if back_in_line(sid, place) then return answer('y') end
  end
  wait(sid, place, 0)
end

local function release(sid, issued, expires)
  flush()
  local expiry = inside > 0 and call('ZSCORE', ACTIVE, sid)
  if not expiry and expires ~= 0 and not refused(sid, issued, expires) then
    v.owed = math.max(0, v.owed - 1)
  end
  left_line(sid)
  local seen = call('ZREM', SEEN, sid)
  if expiry then
    call('ZREM', ACTIVE, sid)
    inside, v.granted = inside - 1, v.granted - seen
  end
  spend(math.max(now, issued), 'l:' .. sid)
  more = promote() or more
  answer('d')
end

local function stats()
  local per_s = -1
  if v.pace_count >= 0.01 then per_s = v.pace_count * 1000 / math.max(v.pace_span, 1000) end
  local buckets = {}
  for i = 1, #WAITS + 1 do buckets[i] = tonumber(call('HGET', RATE, 'w' .. i)) or 0 end
  answer('s', inside, inside - v.granted, waiting, v.capacity, v.paused, owed(), v.admitted,
    v.abandoned, per_s, v.waits, v.wait_sum, unpack(buckets))
end

if waiting > 0 and #ARGV > 19 then
  for from = 19, #ARGV, BOUND do
    local sids = {}
    for i = from, math.min(from + BOUND - 1, #ARGV) do
      sids[#sids + 1] = string.sub(ARGV[i], 2, 23)
    end
    local places = call('ZMSCORE', QUEUE, unpack(sids))
    for i, sid in ipairs(sids) do placed[sid] = tonumber(places[i]) or false end
  end
end

for i = 19, #ARGV do
  local kind, sid, join, random, lot, issued, ticket, due, a_issued, a_expires =
    struct.unpack(OP, ARGV[i])
  if kind == 'e' then
    enter(sid, join, random, lot, issued, ticket, due)
  elseif kind == 'p' then
    poll(sid, issued, ticket, due, a_issued, a_expires)
  elseif kind == 'h' then
    if not refused(sid, a_issued, a_expires) then
      keep(sid)
    elseif join ~= 0 then
      enter(sid, 1, random, lot, issued, ticket, due)
    else
      answer('g')
    end
  elseif kind == 'r' then
    release(sid, a_issued, a_expires)
  elseif kind == 'F' then
    flush()
    -- Freed in the background: half a million take half a second.
    call('UNLINK', QUEUE)
    if v.granted > 0 then
      call('ZINTERSTORE', QUEUE, 2, SEEN, ACTIVE, 'WEIGHTS', 1, 0)
      call('UNLINK', SEEN)
      call('RENAME', QUEUE, SEEN)
    else
      call('UNLINK', SEEN)
    end
    waiting, highest, placed, v.flushed_at = 0, nil, {}, now
    take_order()
    answer('d')
  elseif kind == 'A' then
    flush()
    for from = 0, v.granted > 0 and inside - 1 or -1, BOUND do
      call('ZREM', SEEN, unpack(call('ZRANGE', ACTIVE, from, from + BOUND - 1)))
    end
    call('UNLINK', ACTIVE)
    inside, v.granted, v.owed, v.released_at = 0, 0, 0, now
    answer('d')
  elseif kind == 'S' then
    stats()
  else
    return redis.error_reply('ERR unknown operation')
  end
end

-- What changed goes back.

flush()
local changed = {}
for i, name in ipairs(NAMES) do
  if v[name] ~= was[i] then
    changed[#changed + 1] = name
    changed[#changed + 1] = v[name]
  end
end
if new then
  changed[#changed + 1] = 'about'
  changed[#changed + 1] = 'Numbers of one Corvus access queue; times are this server\'s, in ms since 1970.'
end
call('HSET', RATE, unpack(changed))
if seq then call('SET', SEQ, string.format('%.0f', seq)) end

return pack('<dddddddddddd', now, v.born, v.n, inside, inside - v.granted, owed(), waiting,
  more and 1 or 0, v.cfg, v.capacity, v.per_s > 0 and v.count or 0, v.per_s)
  .. pack('<dd', v.paused, v.random) .. table.concat(answers)
