-- Put before reserve.lua and settle.lua. A scope has four keys: its sums (a hash), its holds (a hash
-- from the hold's id to what it holds and the agent), the ends of their leases (a sorted set) and
-- its agents whose newest answer did not end their work (a sorted set by the time of that answer).

-- Amounts are decimal strings without leading zeros: numbers are doubles here, which pico-USD outgrow
-- at 9,007 USD. They are added in two limbs, each of which a double holds exactly.
local LIMB = 1e15

local function limbs(a)
  return tonumber(string.sub(a, 1, -16)) or 0, tonumber(string.sub(a, -15)) or 0
end

local function joined(high, low)
  if high > 0 then return string.format('%.0f%015.0f', high, low) end
  return string.format('%.0f', low)
end

local function plus(a, b)
  local ah, al = limbs(a)
  local bh, bl = limbs(b)
  local high, low = ah + bh, al + bl
  if low >= LIMB then high, low = high + 1, low - LIMB end
  return joined(high, low)
end

local function less(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end

-- Never below 0.
local function minus(a, b)
  if less(a, b) then return '0' end
  local ah, al = limbs(a)
  local bh, bl = limbs(b)
  local high, low = ah - bh, al - bl
  if low < 0 then high, low = high - 1, low + LIMB end
  return joined(high, low)
end

local function whole(number) return string.format('%.0f', number) end

local at = 0
local function argument()
  at = at + 1
  return ARGV[at]
end

local AMOUNTS = {'turns', 'input', 'output', 'pico'}
local function amounts()
  local read = {}
  for _, name in ipairs(AMOUNTS) do read[name] = argument() end
  return read
end

-- The caps in the order in which they are checked. The first six are used up little by little and
-- have levels.
local TURNS, USD, TOKENS, INPUT, OUTPUT, WALL, DEPTH, AGENTS, MINUTE, CONCURRENCY =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local CAPS = {'turns', 'usd', 'tokens', 'input_tokens', 'output_tokens', 'wall_time',
  'depth', 'agents', 'requests_per_minute', 'concurrency'}
local LEVELLED = WALL

local function of(sums, cap)
  if cap == TURNS then return sums.turns end
  if cap == USD then return sums.pico end
  if cap == TOKENS then return plus(sums.input, sums.output) end
  if cap == INPUT then return sums.input end
  return sums.output
end

local levels = {}
local function read_levels()
  for l = 1, tonumber(argument()) do levels[l] = tonumber(argument()) end
end

-- Reads a scope: its keys from the key-th on, then from the arguments how long it is kept and the
-- limits of the first `caps` caps, each that has levels followed by where they begin.
local function open(index, key, caps)
  local book = {
    index = index, sums = KEYS[key], holds = KEYS[key + 1], leases = KEYS[key + 2],
    agents = KEYS[key + 3], keep = argument(),
    limits = {}, marks = {}, spent = {}, held = {}, told = {},
  }
  for cap = 1, caps do
    local limit = argument()
    if limit ~= '' then
      book.limits[cap] = limit
      if cap <= LEVELLED then
        local marks = {}
        for l = 1, #levels do marks[l] = argument() end
        book.marks[cap] = marks
      end
    end
  end
  local fields = {'first'}
  for _, name in ipairs(AMOUNTS) do
    fields[#fields + 1] = 'spent.' .. name
    fields[#fields + 1] = 'held.' .. name
  end
  for cap = 1, LEVELLED do fields[#fields + 1] = 'told.' .. CAPS[cap] end
  local values = redis.call('HMGET', book.sums, unpack(fields))
  book.first = values[1] and tonumber(values[1]) or nil
  for i, name in ipairs(AMOUNTS) do
    book.spent[name] = values[2 * i] or '0'
    book.held[name] = values[2 * i + 1] or '0'
  end
  for cap = 1, LEVELLED do book.told[cap] = tonumber(values[1 + 2 * #AMOUNTS + cap] or '0') end
  return book
end

-- Ends a hold; false when there was none of that name.
local function let_go(book, id)
  local hold = redis.call('HGET', book.holds, id)
  redis.call('ZREM', book.leases, id)
  if not hold then return false end
  redis.call('HDEL', book.holds, id)
  local turns, input, output, pico = string.match(hold, '^(%d+) (%d+) (%d+) (%d+) ')
  local was = {turns = turns, input = input, output = output, pico = pico}
  for _, name in ipairs(AMOUNTS) do book.held[name] = minus(book.held[name], was[name]) end
  return true
end

-- Milliseconds since the first request; gateways' clocks may differ by a little.
local function elapsed(book, now)
  if not book.first or now < book.first then return 0 end
  return now - book.first
end

-- Notes a level that is new, in `crossed`, as five values.
local crossed = {}
local function tell(book, cap, level, value)
  for _, part in ipairs({whole(book.index), whole(cap), whole(level), value, book.limits[cap]}) do
    crossed[#crossed + 1] = part
  end
  book.told[cap] = level
end

-- The levels that a value has reached; nothing used has reached none.
local function reached(book, cap, value)
  local marks = book.marks[cap]
  if not marks or value == '0' then return end
  for l, level in ipairs(levels) do
    if level > book.told[cap] and not less(value, marks[l]) then tell(book, cap, level, value) end
  end
end

-- Writes the sums back, and keeps the scope from now on for as long as it is to be kept.
local function close(book)
  local fields = {}
  local function put(name, value)
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  for _, name in ipairs(AMOUNTS) do
    put('spent.' .. name, book.spent[name])
    put('held.' .. name, book.held[name])
  end
  for cap = 1, LEVELLED do
    if book.told[cap] > 0 then put('told.' .. CAPS[cap], whole(book.told[cap])) end
  end
  if book.first then put('first', whole(book.first)) end
  redis.call('HSET', book.sums, unpack(fields))
  for _, key in ipairs({book.sums, book.holds, book.leases, book.agents}) do
    redis.call('EXPIRE', key, book.keep)
  end
end

-- How many levels were crossed, these, then the rest.
local function answer(word, rest)
  local out = {word, whole(#crossed / 5)}
  for _, part in ipairs(crossed) do out[#out + 1] = part end
  for _, part in ipairs(rest) do out[#out + 1] = part end
  return out
end
