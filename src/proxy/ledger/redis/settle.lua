-- Puts what was used in the place of what was held.
-- The first key is the sending gateway's: the number of the last settlement that it has sent. One
-- that comes a second time, because the first answer was lost on the way, changes nothing.
-- Arguments: number, how long that is kept (s), hold, now (ms), when it was asked (ms), agent, what
-- became of it ('open', 'ended', or 'unsent': no request came of it), the four amounts, levels,
-- number of scopes, the scopes with the six caps that have levels.
-- Answer: 'settled' or 'again', crossings.

-- Agents that are remembered beyond those with a request under way.
local MOST_AGENTS = 1024

local number = argument()
local last = redis.call('GET', KEYS[1])
if last and not less(last, number) then return answer('again', {}) end
redis.call('SET', KEYS[1], number, 'EX', argument())

local hold = argument()
local now = tonumber(argument())
local asked = tonumber(argument())
local agent = argument()
local outcome = argument()
local used = amounts()
read_levels()

local booked = {}
for s = 1, tonumber(argument()) do
  local book = open(s, 4 * s - 2, LEVELLED)
  let_go(book, hold)
  if outcome ~= 'unsent' then
    if not book.first then book.first = asked end
    -- A scope may be there twice, with other limits.
    if not booked[book.sums] then
      for _, name in ipairs(AMOUNTS) do book.spent[name] = plus(book.spent[name], used[name]) end
    end
    booked[book.sums] = true
    for cap = TURNS, OUTPUT do reached(book, cap, of(book.spent, cap)) end
    if outcome == 'ended' then
      redis.call('ZREM', book.agents, agent)
    else
      redis.call('ZADD', book.agents, now, agent)
      redis.call('ZREMRANGEBYRANK', book.agents, 0, -1 - MOST_AGENTS)
    end
  end
  close(book)
end
return answer('settled', {})
