-- A request asks: all its scopes grant it, or nothing is held.
-- Arguments: hold, now (ms), lease (ms), leases to look after at most, how long an agent stays live
-- (ms), agent, depth, the four amounts, levels, number of scopes, the scopes with all ten caps.
-- Answer: 'granted', crossings, then for each scope the four amounts spent, the four held, the time
-- since its first request; or 'denied', crossings, scope, cap, spent, held, asked, limit, when it can
-- pass (ms, or nothing).
local hold = argument()
local now = tonumber(argument())
local lease = tonumber(argument())
local most_ends = argument()
local live_for = tonumber(argument())
local agent = argument()
local depth = tonumber(argument())
local most = amounts()
read_levels()

local clock = redis.call('TIME')
clock = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)

local books = {}
for s = 1, tonumber(argument()) do
  local book = open(s, 4 * s - 3, #CAPS)
  -- A hold whose gateway does not renew it any more is given back.
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', book.leases, '-inf', clock, 'LIMIT', 0, most_ends)) do
    let_go(book, id)
  end
  book.under_way = redis.call('HLEN', book.holds)
  if book.under_way == 0 then
    for _, name in ipairs(AMOUNTS) do book.held[name] = '0' end
  end
  redis.call('ZREMRANGEBYSCORE', book.agents, '-inf', '(' .. whole(now - live_for))
  if not book.first then book.first = now end
  reached(book, WALL, whole(elapsed(book, now)))
  books[s] = book
end

local function finish(word, rest)
  for _, book in ipairs(books) do close(book) end
  return answer(word, rest)
end

local function denied(book, cap, spent, held, asked, after)
  return {whole(book.index), whole(cap), spent, held, asked, book.limits[cap], after or ''}
end

-- How many agents are live, or nil when the one that asks is among them.
local function other_agents(book)
  local seen, live = {}, 0
  local function see(name)
    if not seen[name] then
      seen[name] = true
      live = live + 1
    end
  end
  for _, name in ipairs(redis.call('ZRANGE', book.agents, 0, -1)) do see(name) end
  for _, value in ipairs(redis.call('HVALS', book.holds)) do
    see(string.match(value, '^%d+ %d+ %d+ %d+ (.*)$'))
  end
  if seen[agent] then return nil end
  return live
end

local function hard(book)
  for cap = TURNS, OUTPUT do
    local limit = book.limits[cap]
    if limit then
      local spent, held, asked = of(book.spent, cap), of(book.held, cap), of(most, cap)
      if not less(spent, limit) or less(limit, plus(plus(spent, held), asked)) then
        return denied(book, cap, spent, held, asked)
      end
    end
  end
  if book.limits[WALL] then
    local value = whole(elapsed(book, now))
    if not less(value, book.limits[WALL]) then return denied(book, WALL, value, '0', '0') end
  end
  if book.limits[DEPTH] and depth > tonumber(book.limits[DEPTH]) then
    return denied(book, DEPTH, '0', '0', whole(depth))
  end
  if book.limits[AGENTS] then
    local live = other_agents(book)
    if live and live >= tonumber(book.limits[AGENTS]) then
      return denied(book, AGENTS, whole(live), '0', '1')
    end
  end
end

-- Requests of this minute and of the one before, as of now, with the milliseconds of it that have
-- passed.
local MS = 60000
local function minute(book)
  local stored = redis.call('HMGET', book.sums, 'minute', 'minute.count', 'minute.before')
  local was, count = tonumber(stored[1] or '0'), tonumber(stored[2] or '0')
  local before = tonumber(stored[3] or '0')
  local this = math.floor(now / MS)
  local passed = now - this * MS
  if was == this then return {this = this, count = count, before = before, passed = passed} end
  if was == this - 1 then return {this = this, count = 0, before = count, passed = passed} end
  -- The clock of another gateway is ahead of this one's: the minute has just begun.
  if was == this + 1 then return {this = was, count = count, before = before, passed = 0} end
  return {this = this, count = 0, before = 0, passed = passed}
end

-- After how many milliseconds of a minute less than `room` of the `before` requests of the minute
-- before count.
local function enough(before, room)
  return MS + 1 - math.min(MS + 1, math.ceil(room * MS / math.max(1, before)))
end

local function soft(book)
  book.minute = minute(book)
  if book.limits[MINUTE] then
    local m, limit = book.minute, tonumber(book.limits[MINUTE])
    local count = m.count + math.floor(m.before * (MS - m.passed) / MS)
    if count >= limit then
      local after
      if limit == 0 then
        after = MS
      elseif m.count < limit then
        after = enough(m.before, limit - m.count) - m.passed
      else
        after = MS - m.passed + enough(m.count, limit)
      end
      return denied(book, MINUTE, whole(count), '0', '1', whole(math.max(1, after)))
    end
  end
  if book.limits[CONCURRENCY] and book.under_way >= tonumber(book.limits[CONCURRENCY]) then
    return denied(book, CONCURRENCY, whole(book.under_way), '0', '1', '1000')
  end
end

-- The same ask once more, when its first answer was lost on the way.
local again = #books > 0 and redis.call('HEXISTS', books[1].holds, hold) == 1
if not again then
  for _, check in ipairs({hard, soft}) do
    for _, book in ipairs(books) do
      local refusal = check(book)
      if refusal then return finish('denied', refusal) end
    end
  end
  local value = table.concat({most.turns, most.input, most.output, most.pico, agent}, ' ')
  for _, book in ipairs(books) do
    for _, name in ipairs(AMOUNTS) do book.held[name] = plus(book.held[name], most[name]) end
    redis.call('HSET', book.holds, hold, value)
    redis.call('ZADD', book.leases, clock + lease, hold)
    local m = book.minute
    redis.call('HSET', book.sums, 'minute', whole(m.this), 'minute.count', whole(m.count + 1),
      'minute.before', whole(m.before))
  end
end

local sums = {}
for _, book in ipairs(books) do
  for _, kind in ipairs({book.spent, book.held}) do
    for _, name in ipairs(AMOUNTS) do sums[#sums + 1] = kind[name] end
  end
  sums[#sums + 1] = whole(elapsed(book, now))
end
return finish('granted', sums)
