-- Small values that gateways share: one call, one change. All keys of a family are in one slot.
--
-- KEYS: 1 the names of the family's values, all with score 0, so that they are in order
--       2 the same names with the time in ms at which each value ends
--       3 the value that this is about
-- ARGV: 1 what to do
--       2 what a name lacks to be the key of its value
--       3 the name, or where a list goes on
--       then: put, new: value, ttl in ms, most names; removeif: value; extend: value, ttl;
--       list: most names, most bytes
--
-- The server ends values by itself. Their names outlive them until somebody writes or lists, and
-- for as long as the value that lives longest at most.

local names, ends, at = KEYS[1], KEYS[2], KEYS[3]
local what, prefix, name = ARGV[1], ARGV[2], ARGV[3]

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function forget(gone)
  redis.call('ZREM', names, gone)
  redis.call('ZREM', ends, gone)
end

-- Drops names of values that have ended. More of them than one write adds, so they do not pile up.
local function reap(most)
  for _, old in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', now_ms(), 'LIMIT', 0, most)) do
    if redis.call('EXISTS', prefix .. old) == 0 then
      forget(old)
    end
  end
end

local function note(ttl)
  redis.call('ZADD', names, 0, name)
  redis.call('ZADD', ends, now_ms() + ttl, name)
  for _, index in ipairs({names, ends}) do
    if redis.call('PTTL', index) < ttl then
      redis.call('PEXPIRE', index, ttl)
    end
  end
end

local function write(value, ttl, most)
  local exists = redis.call('EXISTS', at) == 1
  if exists and what == 'new' then
    return 0
  end
  reap(16)
  if not exists and redis.call('ZCARD', names) >= most then
    reap(1000)
    if redis.call('ZCARD', names) >= most then
      return -1
    end
  end
  redis.call('SET', at, value, 'PX', ttl)
  note(ttl)
  return 1
end

local function list(most, bytes)
  local from = name == '' and '-' or '(' .. name
  local found = redis.call('ZRANGEBYLEX', names, from, '+', 'LIMIT', 0, most + 1)
  local page, taken = {''}, 0
  for i, found_name in ipairs(found) do
    if i > most or taken >= bytes then
      page[1] = found[i - 1]
      break
    end
    local value = redis.call('GET', prefix .. found_name)
    if value then
      page[#page + 1] = found_name
      page[#page + 1] = value
      taken = taken + #value
    else
      forget(found_name)
    end
  end
  return page
end

if what == 'put' or what == 'new' then
  return write(ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]))
elseif what == 'list' then
  return list(tonumber(ARGV[4]), tonumber(ARGV[5]))
elseif what == 'remove' then
  forget(name)
  return redis.call('DEL', at)
elseif redis.call('GET', at) ~= ARGV[4] then
  return 0
elseif what == 'removeif' then
  forget(name)
  return redis.call('DEL', at)
elseif what == 'extend' then
  redis.call('PEXPIRE', at, ARGV[5])
  note(tonumber(ARGV[5]))
  return 1
end
return redis.error_reply('ERR unknown ' .. what)
