-- One value that gateways agree on. KEYS[1]: the value. ARGV[1] is 'read', or 'swap': then ARGV[3]
-- takes the place of ARGV[2] ('': of nothing), unless somebody else was faster. Returns what is
-- there now, and the time of the node that keeps it.
local value = redis.call('GET', KEYS[1]) or ''
if ARGV[1] == 'swap' and value == ARGV[2] then
  redis.call('SET', KEYS[1], ARGV[3])
  value = ARGV[3]
end
local time = redis.call('TIME')
return {value, time[1], time[2]}
