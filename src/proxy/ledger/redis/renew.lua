-- Puts the ends of leases off. The key: a scope's leases. Arguments: lease (ms), then the holds.
-- A hold that has been given back stays so.
local clock = redis.call('TIME')
local ends = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000) + tonumber(ARGV[1])
for i = 2, #ARGV do redis.call('ZADD', KEYS[1], 'XX', ends, ARGV[i]) end
return #ARGV - 1
