"""The dashboards of the records: runs, a run, culprits, spend, latency, tools, loops and caps."""

from clickhouse_panels import (
    COST_COLUMN, ERROR_STEPS, HIT_COLUMN, LOST_COLUMN, PAYER, RUN_COLUMN, TURN_COLUMN, VAR_APP, VAR_MODEL,
    VAR_ZONE, board, lines, only, stat, table, text_variable, to_run, variable,
)
from clickhouse_sql import (
    APP, COSTLY, IN_RANGE, IS_BILLABLE, IS_BREAK, IS_ERROR, IS_TURN, LONG_OF_DAYS, MODEL, NONE, OF_APP,
    OF_PAYER, ORDER, PATH, PROMPT, RAW_BUCKET, WITHOUT_CACHE, chosen, every, of_turns, over_time, quantiles,
    ratio, summed, usd,
)
from common import GREEN, LOST_STEPS, RATIO_STEPS, RED, WIDTH, YELLOW, column, dash, uid

# What is told of each group of requests, in tables of runs and threads.
TOLD = f"""countIf({IS_TURN}) AS "Turns",
  {usd('sum(toUInt128(cost_pico))')} AS "Cost",
  {ratio(f'sumIf(toUInt128(read), isNotNull({PROMPT}))', f'sum({PROMPT})')} AS "Hit ratio",
  {usd(f'sumIf(toUInt128(ifNull(lost_pico, 0)), {IS_BREAK})')} AS "Lost",
  countIf({IS_BREAK}) AS "Breaks",
  countIf({IS_ERROR}) AS "Errors",
  countIf({IS_BILLABLE} AND isNull(cost_pico)) AS "Unpriced\""""
TOLD_COLUMNS = [
    COST_COLUMN, HIT_COLUMN, LOST_COLUMN, column("Errors", "short", steps=ERROR_STEPS, width=80),
    column("Unpriced", "short", steps=(GREEN, (1, YELLOW)), width=90), column("Turns", "short", width=80), column("Breaks", "short", width=80),
]


def runs():
    picked = every(IN_RANGE, COSTLY, *OF_PAYER)
    one = lambda value: f"SELECT {value} AS value\nFROM turns\nWHERE {picked}"
    return board("runs", PAYER, [
        stat("Active runs", "Runs with a request in the range.", one("uniqExact(run_id)"), decimals=0),
        stat("Turns", "Requests that were given on, each with its retries once.", one(f"countIf{IS_TURN}"), decimals=0),
        stat("Cost", "Sum of the known costs of the requests in the range.", one(usd("sum(toUInt128(cost_pico))")), "currencyUSD", decimals=2,
             links=[dash("Spend", "spend")]),
        stat("Cache-hit ratio", "Share of the input tokens that were read from the cache.",
             one(ratio(f"sumIf(toUInt128(read), isNotNull({PROMPT}))", f"sum({PROMPT})")), "percentunit", RATIO_STEPS, decimals=1),
        stat("Lost by broken prefixes", "What was cached and had to be paid again, less what reading it would have cost.",
             one(usd(f"sumIf(toUInt128(ifNull(lost_pico, 0)), {IS_BREAK})")), "currencyUSD", LOST_STEPS, decimals=2, links=[dash("Culprits", "culprits")]),
        stat("Errors", "Requests that went wrong or were refused.", one(f"countIf{IS_ERROR}"), "short", ERROR_STEPS, decimals=0),
        table("Runs", "The 200 runs that were active last. Each is summed up as a whole, also beyond the range. A click on its name leads into it.",
              f"""SELECT
  run_id AS "Run",
  toString(toUnixTimestamp64Milli(min(started)) - 1000) AS from_ms,
  toString(toUnixTimestamp64Milli(max(started)) + toInt64(max(duration_us) / 1000) + 1000) AS to_ms,
  min(started) AS "Started",
  max(started) AS "Last request",
  argMax(app, started) AS "Application",
  arrayStringConcat(arraySort(groupUniqArray(8)({MODEL})), ', ') AS "Models",
  uniqExact(thread_id) AS "Threads",
  {TOLD},
  argMax(client, started) AS "Client"
FROM turns
WHERE {COSTLY}
  AND run_id IN (
    SELECT run_id FROM turns
    WHERE {picked}
    GROUP BY run_id ORDER BY max(started) DESC, run_id LIMIT 200
  )
GROUP BY run_id
ORDER BY "Last request" DESC, run_id""",
              [column("Run", links=[to_run(ranged=True)], width=260), column("from_ms", hidden=True), column("to_ms", hidden=True),
               column("Started", "dateTimeAsIso"), column("Last request", "dateTimeAsIso"),
               column("Application", links=only("Only this application", "runs", "app", "Application")),
               column("Threads", "short", width=80), *TOLD_COLUMNS],
              width=WIDTH, height=14),
        lines("Cost by application", "Cost of each interval.", over_time(f"{usd('sum(s_cost_pico)')} AS cost", ["cost_pico"], "app"), "currencyUSD",
              by="app", stack=True, bars=True),
        lines("Requests by outcome", "How the requests of each interval ended.",
              f"SELECT {RAW_BUCKET} AS time, outcome, count() AS requests\nFROM turns\nWHERE {every(IN_RANGE, COSTLY, *OF_PAYER)}\nGROUP BY time, outcome\n{ORDER}",
              "short", by="outcome", stack=True, bars=True),
        table("What went wrong", "Error types of the range, the most frequent first.",
              f"""SELECT
  ifNull(error_type, '(none)') AS "Error",
  outcome AS "Outcome",
  ifNull(toString(status), '') AS "Status",
  upstream AS "Upstream",
  count() AS "Requests",
  uniqExact(run_id) AS "Runs",
  argMax(run_id, started) AS "Run",
  toString(argMax(id, started)) AS "Turn",
  max(started) AS "Last",
  substring(argMax(ifNull(error_message, ''), started), 1, 200) AS "Message"
FROM turns
WHERE {every(IN_RANGE, IS_ERROR, *OF_PAYER)}
GROUP BY "Error", "Outcome", "Status", "Upstream"
ORDER BY "Requests" DESC
LIMIT 50""",
              [column("Requests", "short", gauge=True), column("Runs", "short", width=70), column("Last", "dateTimeAsIso"), RUN_COLUMN, TURN_COLUMN], width=WIDTH),
    ])


OF_RUN = "run_id = ${run:sqlstring}"
OF_THREAD = chosen("thread_id", "thread")
# The turn that is chosen, else the newest.
THE_TURN = (f"id = if(${{turn:sqlstring}} = '', (SELECT argMax(id, (started, id)) FROM turns WHERE {OF_RUN} AND {OF_THREAD}), "
            "ifNull(toUUIDOrNull(${turn:sqlstring}), toUUID('00000000-0000-0000-0000-000000000000')))")
# What is told of a turn: label, expression.
TURN_FACTS = [
    ("Id", "id"), ("Started", "started"), ("Thread", "thread_id"), ("Agent", "agent"), ("Turn", "if(turn = 0, NULL, turn)"), ("Attempt", "attempt"),
    ("Application", "app"), ("Client", "client"), ("Upstream", "upstream"), ("Key", "credential"), ("Path", "path"),
    ("Model asked for", "model_requested"), ("Model that answered", "model_served"),
    ("Outcome", "outcome"), ("Status", "status"), ("Stop reason", "stop_reason"), ("Error type", "error_type"), ("Error", "error_message"),
    ("Duration, ms", "round(duration_us / 1000)"), ("Time to first token, ms", "round(first_token_us / 1000)"), ("Overhead, us", "overhead_us"),
    ("Tokens: plain input", "uncached"), ("Tokens: read", "read"), ("Tokens: written for 5 minutes", "write_5m"), ("Tokens: written for 1 hour", "write_1h"),
    ("Tokens: written for 30 minutes", "write_30m"), ("Tokens: written for 12 hours", "write_12h"),
    ("Tokens: output", "output"), ("Tokens: reasoning", "reasoning"),
    ("Cost, USD", "toDecimal128(cost_pico, 12) / 1000000000000"), ("Without a cache, USD", "toDecimal128(cost_no_cache_pico, 12) / 1000000000000"),
    ("Verdict", "verdict"), ("Reason", "verdict_reason"), ("First changed", "first_changed"), ("At character", "first_changed_offset"), ("What", "what"), ("Whose", "whose"),
    ("Told", "verdict_detail"), ("Lost tokens", "lost_tokens"), ("Lost, USD", "toDecimal128(lost_pico, 12) / 1000000000000"), ("No verdict, since", "unjudged"),
    ("Diagnosis of the provider", "native_diagnosis"), ("Breakpoints of the client", "markers_client"), ("Breakpoints added", "if(markers_added = '[]', NULL, markers_added)"),
    ("Policy", "policy"), ("Helper", "helper"), ("Loops and caps", "guard"), ("Not read, since", "inspection_reason"),
    ("Warnings", "nullIf(arrayStringConcat(warnings, ', '), '')"), ("Request id of the provider", "request_id"), ("Trace context", "traceparent"),
]


def run():
    facts = ",\n    ".join(f"('{label}', ifNull(toString({value}), ''))" for label, value in TURN_FACTS)
    here = f"/d/{uid('run')}?${{datasource:queryparam}}&${{__url_time_range}}&${{run:queryparam}}"
    to_thread = {"title": "Only this thread", "url": here + "&var-thread=${__data.fields.Thread:percentencode}", "targetBlank": False}
    to_turn = {"title": "This turn", "url": here + "&${thread:queryparam}&var-turn=${__data.fields.Turn:percentencode}", "targetBlank": False}
    one = lambda value: f"SELECT {value} AS value\nFROM turns\nWHERE {OF_RUN} AND {COSTLY}"
    variables = [
        text_variable("run", "Run", "The name of a run, as the dashboard Runs has it."),
        variable("thread", "Thread", f"SELECT thread_id AS value\nFROM turns\nWHERE {OF_RUN}\n  AND position(value, '\\\\') = 0\nGROUP BY value\nORDER BY min(started)\nLIMIT 1000"),
        text_variable("turn", "Turn", "The id of a turn; empty: the newest."),
    ]
    return board("run", variables, [
        stat("Cost", "Sum of the known costs of all requests of the run.", one(usd("sum(toUInt128(cost_pico))")), "currencyUSD", decimals=4),
        stat("Without a cache", "What the same requests would have cost, as far as both costs are known.",
             one(usd(f"sumIf(toUInt128({WITHOUT_CACHE}), isNotNull(cost_pico))")), "currencyUSD", decimals=4),
        stat("Cache-hit ratio", "Share of the input tokens that were read from the cache.",
             one(ratio(f"sumIf(toUInt128(read), isNotNull({PROMPT}))", f"sum({PROMPT})")), "percentunit", RATIO_STEPS, decimals=1),
        stat("Lost", "What broken prefixes cost in this run.", one(usd(f"sumIf(toUInt128(ifNull(lost_pico, 0)), {IS_BREAK})")), "currencyUSD", LOST_STEPS, decimals=4),
        stat("Errors", "Requests that went wrong or were refused.", one(f"countIf{IS_ERROR}"), "short", ERROR_STEPS, decimals=0),
        stat("Failed tool calls", "Calls whose result is a failure.", f"SELECT countIf(status = 'failed') AS value\nFROM tool_calls\nWHERE {OF_RUN}", "short", ERROR_STEPS, decimals=0),

        table("Threads", "The agent, its sub-agents below the one that started them, and side calls. A click shows only this thread.",
              f"""WITH RECURSIVE
  threads AS (
    SELECT
      thread_id,
      ifNull(argMax(parent_thread, started), '') AS parent,
      argMax(agent, started) AS agent,
      min(started) AS first,
      {TOLD}
    FROM turns
    WHERE {OF_RUN} AND {COSTLY}
    GROUP BY thread_id
  ),
  calls AS (
    SELECT thread_id, count() AS calls, countIf(status = 'failed') AS failed
    FROM tool_calls
    WHERE {OF_RUN}
    GROUP BY thread_id
  ),
  tree AS (
    SELECT thread_id, 0 AS depth, [toString(first), thread_id] AS place
    FROM threads
    WHERE parent = '' OR parent NOT IN (SELECT thread_id FROM threads)
    UNION ALL
    SELECT child.thread_id, tree.depth + 1, arrayConcat(tree.place, [toString(child.first), child.thread_id])
    FROM tree
    INNER JOIN threads AS child ON child.parent = tree.thread_id
    WHERE tree.depth < 20
  )
SELECT
  concat(repeat('\u2003', tree.depth), ifNull(threads.agent, if(tree.depth = 0, 'agent', 'sub-agent'))) AS "Agent",
  threads.thread_id AS "Thread",
  threads.first AS "Started",
  "Turns", "Cost", "Hit ratio", "Lost", "Breaks", "Errors", "Unpriced",
  calls.calls AS "Tool calls",
  calls.failed AS "Failed calls"
FROM tree
INNER JOIN threads ON threads.thread_id = tree.thread_id
LEFT JOIN calls ON calls.thread_id = tree.thread_id
ORDER BY tree.place""",
              [column("Agent", links=[to_thread], width=220), column("Thread", links=[to_thread], width=220), column("Started", "dateTimeAsIso"), *TOLD_COLUMNS,
               column("Tool calls", "short"), column("Failed calls", "short", steps=ERROR_STEPS)], width=WIDTH),
        lines("Prompt of each turn", "Input tokens by kind. What is read costs a tenth; a turn that writes all of it again has broken the prefix.",
              f"""SELECT
  started AS time,
  sum(ifNull(read, 0)) AS "read",
  sum(ifNull(write_5m, 0) + ifNull(write_1h, 0) + ifNull(write_30m, 0) + ifNull(write_12h, 0)) AS "written",
  sum(ifNull(uncached, 0)) AS "plain"
FROM turns
WHERE {every(OF_RUN, COSTLY, OF_THREAD)}
GROUP BY time
{ORDER}""", "short", stack=True, bars=True),
        table("Tool calls", "Of the turn that is chosen, else of the run; the newest 1000 as they stand now.",
              f"""SELECT
  asked AS "Asked",
  name AS "Tool",
  status AS "Status",
  latency_ms AS "Latency",
  retries AS "Retries",
  input_bytes AS "Input",
  result_bytes AS "Result",
  ifNull(wrong, '') AS "Wrong",
  thread_id AS "Thread",
  toString(turn_id) AS "Turn",
  call_id AS "Call"
FROM tool_calls
WHERE {every(OF_RUN, OF_THREAD, "(${turn:sqlstring} = '' OR toString(turn_id) = ${turn:sqlstring})")}
ORDER BY asked DESC, call_id
LIMIT 1000""",
              [column("Asked", "dateTimeAsIso"), column("Latency", "ms"), column("Input", "bytes"), column("Result", "bytes"), column("Retries", "short"),
               column("Turn", links=[to_turn], width=120)]),
        table("Turns", "The newest 1000 requests of every kind. A click on its id shows all that is known of one, and its tool calls.",
              f"""SELECT
  started AS "Started",
  toString(id) AS "Turn",
  thread_id AS "Thread",
  if(kind = 'turn', toString(turn), kind) AS "Number",
  attempt AS "Attempt",
  {MODEL} AS "Model",
  outcome AS "Outcome",
  ifNull(stop_reason, '') AS "Stop reason",
  ifNull(verdict, '') AS "Verdict",
  ifNull(verdict_reason, '') AS "Reason",
  ifNull(first_changed, '') AS "First changed",
  {usd('cost_pico')} AS "Cost",
  {usd('lost_pico')} AS "Lost",
  {ratio('read', PROMPT)} AS "Hit ratio",
  toUInt64({PROMPT}) AS "Prompt",
  output AS "Output",
  duration_us AS "Duration",
  first_token_us AS "First token"
FROM turns
WHERE {every(OF_RUN, OF_THREAD)}
ORDER BY started DESC, id DESC
LIMIT 1000""",
              [column("Started", "dateTimeAsIso"), column("Turn", links=[to_turn], width=120), column("Thread", links=[to_thread]), COST_COLUMN, LOST_COLUMN, HIT_COLUMN,
               column("Prompt", "short"), column("Output", "short"), column("Attempt", "short", steps=(GREEN, (2, YELLOW))), column("Duration", "µs"), column("First token", "µs")],
              width=WIDTH, height=12),
        table("The turn", "All that is known of the turn that is chosen, else of the newest.",
              f"""SELECT fact.1 AS "Fact", fact.2 AS "Value"
FROM turns
ARRAY JOIN arrayFilter(one -> one.2 != '', [
    {facts}
  ]) AS fact
WHERE {OF_RUN} AND {THE_TURN}""", [column("Fact", width=240)], height=16),
        table("Loops and caps", "What the guards said of this run.",
              f"""SELECT
  at AS "At", kind AS "Kind", name AS "Name", action AS "Action", thread_id AS "Thread",
  value AS "Value", limit_value AS "Limit", level AS "Percent", {usd('pico')} AS "Cost so far",
  arrayStringConcat(tools, ', ') AS "Tools"
FROM events
WHERE {OF_RUN}
ORDER BY at DESC
LIMIT 200""", [column("At", "dateTimeAsIso"), column("Value", "short"), column("Limit", "short"), column("Percent", "percent"), column("Cost so far", "currencyUSD")], height=16),
    ])


def culprits():
    breaks = every(IN_RANGE, IS_BREAK, *OF_PAYER)
    one = lambda value: f"SELECT {value} AS value\nFROM turns\nWHERE {breaks}"
    lost = "sum(toUInt128(ifNull(lost_pico, 0)))"
    judged = every(IN_RANGE, "kind = 'turn'", "isNotNull(verdict)", *OF_PAYER)
    return board("culprits", PAYER, [
        stat("Lost", "What broken prefixes cost: what was cached and had to be paid again, less what reading it would have cost.", one(usd(lost)), "currencyUSD", LOST_STEPS, decimals=2),
        stat("Lost tokens", "Tokens that were in the cache and were not read.", one("sum(toUInt128(ifNull(lost_tokens, 0)))"), "short", (GREEN, (1, YELLOW))),
        stat("Breaks", "Turns of which less was read than was there.", one("count()"), "short", (GREEN, (1, YELLOW)), decimals=0),
        stat("Share of turns", "Breaks among the turns with a verdict.", f"SELECT {ratio(f'countIf{IS_BREAK}', 'count()')} AS value\nFROM turns\nWHERE {judged}",
             "percentunit", (GREEN, (0.02, YELLOW), (0.1, RED)), decimals=1),
        stat("Not known in money", "Breaks without a known price; they are in no sum of money.", one("countIf(isNull(lost_pico))"), "short", (GREEN, (1, YELLOW)), decimals=0),
        stat("Written twice", "What parallel turns wrote that one of them could have read. The helper warm_first avoids that.",
             f"SELECT {usd('sum(toUInt128(ifNull(duplicate_pico, 0)))')} AS value\nFROM turns\nWHERE {every(IN_RANGE, COSTLY, *OF_PAYER)}", "currencyUSD", LOST_STEPS, decimals=2),
        table("Culprits", "The first changed place in the prompt and what happened there, the dearest first. Places of the conversation are all one. `prefixgate audit` tells the same.",
              f"""SELECT
  ifNull({PATH}, '') AS "Path",
  ifNull(verdict_reason, '') AS "Reason",
  ifNull(what, '') AS "What",
  ifNull(whose, '') AS "Whose",
  {APP} AS "Application",
  {usd(lost)} AS "Lost",
  sum(toUInt128(ifNull(lost_tokens, 0))) AS "Lost tokens",
  count() AS "Breaks",
  countIf(isNull(lost_pico)) AS "Unpriced",
  uniqExact(run_id) AS "Runs",
  min(started) AS "First",
  max(started) AS "Last",
  argMax(run_id, started) AS "Run",
  toString(argMax(id, started)) AS "Turn",
  argMax(verdict_detail, started) AS "Told of the last"
FROM turns
WHERE {breaks}
GROUP BY "Path", "Reason", "What", "Whose", "Application"
ORDER BY {lost} DESC, "Breaks" DESC, "Path"
LIMIT 100""",
              [column("Path", width=260), column("Application", links=only("Only this application", "culprits", "app", "Application")),
               column("Lost", "currencyUSD", gauge=True, decimals=4), column("Lost tokens", "short"), column("Breaks", "short"), column("Unpriced", "short"), column("Runs", "short"),
               column("First", "dateTimeAsIso"), column("Last", "dateTimeAsIso"), RUN_COLUMN, TURN_COLUMN], width=WIDTH, height=12),
        lines("Lost by reason", "USD of each interval, by what broke the prefix.",
              f"SELECT {RAW_BUCKET} AS time, ifNull(verdict_reason, {NONE}) AS reason, {usd(lost)} AS lost\nFROM turns\nWHERE {breaks}\nGROUP BY time, reason\n{ORDER}",
              "currencyUSD", by="reason", stack=True, bars=True),
        lines("Lost by application", "USD of each interval.", over_time(f"{usd('sum(s_lost_pico)')} AS lost", ["lost_pico"], "app"), "currencyUSD",
              by="app", stack=True, bars=True),
        lines("Verdicts", "Turns of each interval by what became of the cache. hit and extended are well, cold is a first turn.",
              f"SELECT {RAW_BUCKET} AS time, ifNull(verdict, {NONE}) AS verdict_, count() AS turns\nFROM turns\nWHERE {judged}\nGROUP BY time, verdict_\n{ORDER}",
              "short", by="verdict_", stack=True, bars=True),
        table("Dearest breaks", "Single turns. A click on its id shows all that is known of one.",
              f"""SELECT
  {usd('lost_pico')} AS "Lost",
  lost_tokens AS "Lost tokens",
  ifNull(first_changed, '') AS "Path",
  ifNull(verdict_reason, '') AS "Reason",
  ifNull(what, '') AS "What",
  started AS "Started",
  run_id AS "Run",
  toString(id) AS "Turn",
  verdict_detail AS "Told"
FROM turns
WHERE {breaks}
ORDER BY ifNull(lost_pico, 0) DESC, started DESC, id
LIMIT 50""", [LOST_COLUMN, column("Lost tokens", "short"), column("Started", "dateTimeAsIso"), RUN_COLUMN, TURN_COLUMN]),
        table("The provider's own diagnosis", "Where the provider says why it missed: whether it says the same as the verdict.",
              f"""SELECT
  multiIf(isNull(native_agrees), 'cannot be compared', native_agrees, 'agrees', 'differs') AS "Diagnosis",
  ifNull(verdict_reason, {NONE}) AS "Reason",
  count() AS "Turns"
FROM turns
WHERE {every(judged, "isNotNull(native_diagnosis)")}
GROUP BY "Diagnosis", "Reason"
ORDER BY "Turns" DESC""", [column("Turns", "short", gauge=True)], width=WIDTH, height=6),
    ], since="now-7d")


def spend():
    cost = usd("sum(s_cost_pico)")
    saved = "(toInt128(sum(s_cost_no_cache_pico)) - toInt128(sum(s_compared_pico)))"
    one = lambda value, *measures: f"SELECT {value} AS value\nFROM {summed(*measures)}"
    hit = ratio("sum(s_prompt_read)", "sum(s_prompt)")
    groups = {"app": "Application", "model": "Model", "upstream": "Upstream", "key": "Key"}

    def by(name, what):
        return lines(f"Cost by {what}", "Cost of each interval.", over_time(f"{cost} AS cost", ["cost_pico"], name), "currencyUSD", by=name, stack=True, bars=True)

    def grouped(names):
        selected = ",\n  ".join(f'of_{name} AS "{groups[name]}"' for name in names)
        return f"""SELECT
  {selected},
  {cost} AS "Cost",
  {usd(saved)} AS "Saved",
  {usd('sum(s_lost_pico)')} AS "Lost",
  {hit} AS "Hit ratio",
  sum(s_turns) AS "Turns",
  sum(s_errors) AS "Errors",
  {ratio(cost, 'sum(s_turns)')} AS "Cost of a turn",
  sum(s_output) AS "Output",
  sum(s_unpriced) AS "Unpriced"
FROM {summed('cost_pico', 'compared_pico', 'cost_no_cache_pico', 'lost_pico', 'prompt', 'prompt_read', 'turns', 'errors', 'output', 'unpriced', by=names)}
GROUP BY {', '.join(f'of_{name}' for name in names)}
ORDER BY sum(s_cost_pico) DESC NULLS LAST
LIMIT 500"""

    columns = [
        column("Cost", "currencyUSD", gauge=True, decimals=4), column("Saved", "currencyUSD", steps=(RED, (0, GREEN)), decimals=4), LOST_COLUMN, HIT_COLUMN,
        column("Turns", "short"), column("Errors", "short", steps=ERROR_STEPS), column("Cost of a turn", "currencyUSD", decimals=4), column("Output", "short"),
        column("Unpriced", "short", steps=(GREEN, (1, YELLOW))),
        *(column(label, links=only(f"Only this {label.lower()}", "spend", name, label)) for name, label in groups.items()),
    ]
    return board("spend", [*PAYER, VAR_ZONE], [
        stat("Cost", "Sum of the known costs in the range.", one(cost, "cost_pico"), "currencyUSD", decimals=2),
        stat("Saved by the cache", "What the same requests would have cost without any cache, less what they cost. Negative where writes were never read.",
             one(usd(saved), "compared_pico", "cost_no_cache_pico"), "currencyUSD", (RED, (0, GREEN)), decimals=2),
        stat("Cache-hit ratio", "Share of the input tokens that were read from the cache.", one(hit, "prompt", "prompt_read"), "percentunit", RATIO_STEPS, decimals=1),
        stat("Lost", "What broken prefixes cost.", one(usd("sum(s_lost_pico)"), "lost_pico"), "currencyUSD", LOST_STEPS, decimals=2, links=[dash("Culprits", "culprits")]),
        stat("Turns", "Requests that were given on, each with its retries once.", one("sum(s_turns)", "turns"), decimals=0),
        stat("Unpriced", "Requests that may have been charged for and have no known cost. Add a [[price]] for their model.", one("sum(s_unpriced)", "unpriced"), "short",
             (GREEN, (1, YELLOW)), decimals=0),
        by("app", "application"),
        by("model", "model"),
        by("key", "key"),
        lines("Cache-hit ratio by application", "Share of the input tokens that were read from the cache.",
              over_time(f"{hit} AS ratio", ["prompt", "prompt_read"], "app"), "percentunit", by="app", maximum=1),
        table("Spend", "By application, model, upstream and key in the range.", grouped(("app", "model", "upstream", "key")), columns, width=WIDTH, height=10),
        table("Days", "Days of the time zone that is chosen above. Each request is in exactly one, by its start; first and last day as far as the range has them.",
              f"""SELECT
  formatDateTime(toStartOfDay(t, ${{zone:sqlstring}}), '%Y-%m-%d', ${{zone:sqlstring}}) AS "Day",
  {cost} AS "Cost",
  {usd(saved)} AS "Saved",
  {usd('sum(s_lost_pico)')} AS "Lost",
  {hit} AS "Hit ratio",
  sum(s_turns) AS "Turns",
  sum(s_errors) AS "Errors"
FROM {summed('cost_pico', 'compared_pico', 'cost_no_cache_pico', 'lost_pico', 'prompt', 'prompt_read', 'turns', 'errors', long=LONG_OF_DAYS)}
GROUP BY "Day"
ORDER BY "Day" DESC""", columns[:6], height=10),
        lines("Input by kind", "Input tokens of each interval: read, written, and neither.",
              over_time('ifNull(sum(s_read), 0) AS "read", ifNull(sum(s_write_5m), 0) + ifNull(sum(s_write_1h), 0) + ifNull(sum(s_write_30m), 0) + ifNull(sum(s_write_12h), 0) AS "written", ifNull(sum(s_uncached), 0) AS "plain"',
                        ["read", "write_5m", "write_1h", "write_30m", "write_12h", "uncached"]), "short", stack=True, bars=True, height=10),
        lines("With and without cache", "Cost of each interval, and what the same requests would have cost if nothing were cached.",
              over_time(f'{usd("sum(s_compared_pico)")} AS "paid", {usd("sum(s_cost_no_cache_pico)")} AS "without cache"', ["compared_pico", "cost_no_cache_pico"]),
              "currencyUSD", width=WIDTH),
    ], since="now-30d")


def latency():
    wanted = every(IN_RANGE, "kind = 'turn'", *OF_PAYER)

    def one(level, measure):
        return f"SELECT quantileTDigest({level})({measure}) / 1e6 AS value\nFROM turns\nWHERE {wanted}"

    return board("latency", PAYER, [
        stat("First token, p50", "From the request to the first content of the answer: half of the turns were faster.", one(0.5, "first_token_us"), "s", (GREEN, (5, YELLOW), (20, RED))),
        stat("First token, p95", "One turn in twenty was slower.", one(0.95, "first_token_us"), "s", (GREEN, (15, YELLOW), (60, RED))),
        stat("Duration, p50", "From the request to the end of the answer.", one(0.5, "duration_us"), "s"),
        stat("Duration, p95", "One turn in twenty was slower.", one(0.95, "duration_us"), "s"),
        stat("Overhead, p50", "From the last byte of a request to its way upstream: what the gateway adds.", one(0.5, "overhead_us"), "s", (GREEN, (0.005, YELLOW), (0.05, RED))),
        stat("Overhead, p99", "One turn in a hundred was held up longer.", one(0.99, "overhead_us"), "s", (GREEN, (0.02, YELLOW), (0.1, RED))),
        lines("Time to first token", "Quantiles of each interval.", quantiles("first_token_us"), "s"),
        lines("Duration", "Quantiles of each interval.", quantiles("duration_us"), "s"),
        lines("Time to first token by model, p95", "One turn in twenty was slower. A model that is slow for everybody is the provider's doing.", quantiles("first_token_us", "model"), "s", by="model"),
        lines("Time to first token by upstream, p95", "One turn in twenty was slower.", quantiles("first_token_us", "upstream"), "s", by="upstream"),
        lines("Overhead", "What the gateway adds; quantiles of each interval.", quantiles("overhead_us"), "s"),
        table("By model", "Quantiles of the range, in seconds, and what was read: a prompt that is read answers sooner.",
              f"""SELECT
  {MODEL} AS "Model",
  upstream AS "Upstream",
  count() AS "Turns",
  quantileTDigest(0.5)(first_token_us) / 1e6 AS "First token p50",
  quantileTDigest(0.95)(first_token_us) / 1e6 AS "First token p95",
  quantileTDigest(0.5)(duration_us) / 1e6 AS "Duration p50",
  quantileTDigest(0.95)(duration_us) / 1e6 AS "Duration p95",
  sum(output) / (sumIf(duration_us, isNotNull(output)) / 1e6) AS "Tokens a second",
  {ratio(f'sumIf(toUInt128(read), isNotNull({PROMPT}))', f'sum({PROMPT})')} AS "Hit ratio"
FROM turns
WHERE {wanted}
GROUP BY "Model", "Upstream"
ORDER BY "Turns" DESC
LIMIT 100""",
              [column("Turns", "short"), *(column(f"{what} {level}", "s") for what in ("First token", "Duration") for level in ("p50", "p95")), column("Tokens a second", "short", decimals=0), HIT_COLUMN]),
        table("Slowest turns", "By the time to their first token. A click on its id shows all that is known of one.",
              f"""SELECT
  first_token_us / 1e6 AS "First token",
  duration_us / 1e6 AS "Duration",
  overhead_us / 1e6 AS "Overhead",
  {MODEL} AS "Model",
  {APP} AS "Application",
  toUInt64({PROMPT}) AS "Prompt",
  read AS "Read",
  output AS "Output",
  started AS "Started",
  run_id AS "Run",
  toString(id) AS "Turn"
FROM turns
WHERE {every(wanted, "isNotNull(first_token_us)")}
ORDER BY first_token_us DESC, id
LIMIT 50""",
              [column("First token", "s"), column("Duration", "s"), column("Overhead", "s"), column("Prompt", "short"), column("Read", "short"), column("Output", "short"),
               column("Started", "dateTimeAsIso"), RUN_COLUMN, TURN_COLUMN], width=WIDTH, height=10),
    ])


def tools():
    asked = every("$__timeFilter_ms(asked)", of_turns(APP, "app"), of_turns(MODEL, "model"), chosen("name", "tool"))
    one = lambda value: f"SELECT {value} AS value\nFROM tool_calls\nWHERE {asked}"
    bucket = "$__timeInterval(asked)"
    failed = ratio("countIf(status = 'failed')", "countIf(status IN ('ok', 'failed'))")
    names = ("SELECT name AS value\nFROM tool_calls\nWHERE $__timeFilter_ms(asked)\n  AND position(value, '\\\\') = 0\nGROUP BY value\nORDER BY count() DESC, value\nLIMIT 500")
    bad = (GREEN, (0.05, YELLOW), (0.2, RED))
    return board("tools", [VAR_APP, VAR_MODEL, variable("tool", "Tool", names)], [
        stat("Calls", "Tool calls that answers asked for.", one("count()"), decimals=0),
        stat("Failing share", "Of the calls with a result.", one(failed), "percentunit", bad, decimals=1),
        stat("Retried", "Calls that repeat one which had just failed.", one("countIf(retries > 0)"), "short", (GREEN, (1, YELLOW)), decimals=0),
        stat("Without a result", "The conversation went on without a result, or the stream broke inside the call.", one("countIf(status IN ('incomplete', 'unanswered'))"), "short", ERROR_STEPS, decimals=0),
        stat("Wrong calls", "No such tool is declared, or the input does not fit its schema.", one("countIf(isNotNull(wrong))"), "short", ERROR_STEPS, decimals=0),
        stat("Latency, p95", "From the end of the answer to the request with the result.", one("quantileTDigest(0.95)(latency_ms)"), "ms"),
        table("Tools", "In the range, the one that failed most often first.",
              f"""SELECT
  name AS "Tool",
  count() AS "Calls",
  countIf(status = 'ok') AS "Ok",
  countIf(status = 'failed') AS "Failed",
  {failed} AS "Failing share",
  countIf(status = 'incomplete') AS "Incomplete",
  countIf(status = 'unanswered') AS "Unanswered",
  countIf(status = 'pending') AS "Pending",
  countIf(retries > 0) AS "Retried",
  countIf(ifNull(wrong, '') = 'undeclared') AS "Undeclared",
  countIf(ifNull(wrong, '') = 'invalid_input') AS "Invalid input",
  quantileTDigest(0.5)(latency_ms) AS "Latency p50",
  quantileTDigest(0.95)(latency_ms) AS "Latency p95",
  quantileTDigest(0.95)(result_bytes) AS "Result p95",
  uniqExact(run_id) AS "Runs"
FROM tool_calls
WHERE {asked}
GROUP BY name
ORDER BY "Failed" DESC, "Unanswered" + "Incomplete" DESC, "Calls" DESC, name
LIMIT 200""",
              [column("Tool", links=only("Only this tool", "tools", "tool", "Tool"), width=200), column("Failing share", "percentunit", steps=bad, decimals=1),
               *(column(name, "short") for name in ("Calls", "Ok", "Pending", "Retried", "Runs")),
               *(column(name, "short", steps=ERROR_STEPS) for name in ("Failed", "Incomplete", "Unanswered", "Undeclared", "Invalid input")),
               column("Latency p50", "ms"), column("Latency p95", "ms"), column("Result p95", "bytes")], width=WIDTH, height=12),
        lines("Calls by tool", "Calls of each interval.", f"SELECT {bucket} AS time, name AS tool, count() AS calls\nFROM tool_calls\nWHERE {asked}\nGROUP BY time, tool\n{ORDER}",
              "short", by="tool", stack=True, bars=True),
        lines("Failed calls by tool", "Failed calls of each interval.",
              f"SELECT {bucket} AS time, name AS tool, countIf(status = 'failed') AS failed\nFROM tool_calls\nWHERE {asked}\nGROUP BY time, tool\n{ORDER}", "short", by="tool", stack=True, bars=True),
        lines("Latency by tool, p95", "One call in twenty took longer.",
              f"SELECT {bucket} AS time, name AS tool, quantileTDigest(0.95)(latency_ms) AS p95\nFROM tool_calls\nWHERE {asked} AND isNotNull(latency_ms)\nGROUP BY time, tool\n{ORDER}", "ms", by="tool"),
        table("Failed calls", "The newest. A click on the run shows what it went on with.",
              f"""SELECT
  asked AS "Asked", name AS "Tool", status AS "Status", ifNull(wrong, '') AS "Wrong", retries AS "Retries",
  latency_ms AS "Latency", run_id AS "Run", toString(turn_id) AS "Turn"
FROM tool_calls
WHERE {asked} AND (status IN ('failed', 'incomplete', 'unanswered') OR isNotNull(wrong))
ORDER BY asked DESC, call_id
LIMIT 100""", [column("Asked", "dateTimeAsIso"), column("Retries", "short"), column("Latency", "ms"), RUN_COLUMN, TURN_COLUMN]),
    ])


def events():
    happened = every("$__timeFilter_ms(at)", OF_APP)
    one = lambda condition: f"SELECT countIf({condition}) AS value\nFROM events\nWHERE {happened}"
    bucket = "$__timeInterval(at)"
    refusal = "(kind = 'cap_refused' AND action != 'warn' OR kind = 'cap_unenforced' AND action = 'refused')"
    # A cap on money is in pico-USD, one on time in milliseconds; counts are counts.
    plain = "multiIf(name = 'usd', concat(toString(toDecimal128({0}, 4) / 1000000000000), ' USD'), name = 'wall_time', concat(toString({0} / 1000), ' s'), toString({0}))"
    return board("events", [VAR_APP], [
        stat("Loops found", "Loops that were found: one detector in one thread with the same tools.",
             f"SELECT uniqExact((run_id, thread_id, name, tools)) AS value\nFROM events\nWHERE {happened} AND kind = 'loop'", "short", ERROR_STEPS, decimals=0),
        stat("What loops have cost", "What the turns of each loop cost until it was last heard of.",
             f"""SELECT {usd('sum(cost)')} AS value
FROM (
  SELECT toUInt128(ifNull(max(pico), 0)) AS cost
  FROM events
  WHERE {happened} AND kind = 'loop'
  GROUP BY run_id, thread_id, name, tools
)""", "currencyUSD", LOST_STEPS, decimals=2),
        stat("Loops acted on", "Steps at which an agent was given a hint, was stopped or was answered in the model's place.", one("kind = 'loop' AND action NOT IN ('', 'warn')"), "short", decimals=0),
        stat("Refused by caps", "Requests that a cap refused.", one(refusal), "short", ERROR_STEPS, decimals=0),
        stat("Shares of caps reached", "How often a share of a cap was told.", one("kind = 'cap_level'"), "short", (GREEN, (1, YELLOW)), decimals=0),
        stat("Caps not enforced", "Caps on money that could not be kept, since a price is unknown.", one("kind = 'cap_unenforced' AND action != 'refused'"), "short", ERROR_STEPS, decimals=0),
        table("Loops", "One detector in one thread with the same tools is one loop. The one that went on last comes first.",
              f"""SELECT
  run_id AS "Run",
  thread_id AS "Thread",
  argMax(app, at) AS "Application",
  name AS "Detector",
  arrayStringConcat(tools, ', ') AS "Tools",
  max(value) AS "Count",
  argMax(limit_value, at) AS "Threshold",
  count() AS "Steps",
  argMax(action, at) AS "Action",
  {usd('max(pico)')} AS "Cost",
  min(at) AS "First",
  max(at) AS "Last",
  toString(argMax(turn_id, at)) AS "Turn"
FROM events
WHERE {happened} AND kind = 'loop'
GROUP BY run_id, thread_id, name, tools
ORDER BY "Last" DESC, run_id
LIMIT 200""",
              [RUN_COLUMN, COST_COLUMN, column("Count", "short", gauge=True), column("Threshold", "short"), column("Steps", "short"), column("First", "dateTimeAsIso"), column("Last", "dateTimeAsIso"), TURN_COLUMN,
               column("Application", links=only("Only this application", "events", "app", "Application"))], width=WIDTH, height=10),
        table("Caps", "Each cap of a run or key of which something is to be told. The one that was last heard of comes first.",
              f"""SELECT
  run_id AS "Run",
  argMax(app, at) AS "Application",
  scope AS "Scope",
  name AS "Cap",
  max(level) AS "Percent",
  ifNull({plain.format('argMaxIf(value, at, isNotNull(limit_value))')}, '') AS "Used",
  ifNull({plain.format('argMaxIf(limit_value, at, isNotNull(limit_value))')}, '') AS "Limit",
  countIf(kind = 'cap_level') AS "Shares told",
  countIf{refusal} AS "Refused",
  countIf(kind = 'cap_unenforced' AND action != 'refused') AS "Not enforced",
  min(at) AS "First",
  max(at) AS "Last"
FROM events
WHERE {happened} AND kind IN ('cap_level', 'cap_refused', 'cap_unenforced')
GROUP BY scope, run_id, name
ORDER BY "Last" DESC, run_id
LIMIT 200""",
              [RUN_COLUMN, column("Percent", "percent", steps=(GREEN, (80, YELLOW), (100, RED))), column("Shares told", "short"), column("Refused", "short", steps=ERROR_STEPS),
               column("Not enforced", "short", steps=ERROR_STEPS), column("First", "dateTimeAsIso"), column("Last", "dateTimeAsIso")], width=WIDTH, height=10),
        lines("Events by kind", "Events of each interval.", f"SELECT {bucket} AS time, kind, count() AS events\nFROM events\nWHERE {happened}\nGROUP BY time, kind\n{ORDER}",
              "short", by="kind", stack=True, bars=True),
        lines("Steps of loops by detector", "Loops that were found or went on to a next step.",
              f"SELECT {bucket} AS time, name, count() AS steps\nFROM events\nWHERE {happened} AND kind = 'loop'\nGROUP BY time, name\n{ORDER}", "short", by="name", stack=True, bars=True),
        table("Events", "As they happened, the newest 500.",
              f"""SELECT
  at AS "At", kind AS "Kind", name AS "Name", action AS "Action", scope AS "Scope", run_id AS "Run", thread_id AS "Thread",
  {APP} AS "Application", value AS "Value", limit_value AS "Limit", level AS "Percent", {usd('pico')} AS "Cost",
  arrayStringConcat(tools, ', ') AS "Tools", ifNull(toString(turn_id), '') AS "Turn"
FROM events
WHERE {happened}
ORDER BY at DESC, id
LIMIT 500""",
              [column("At", "dateTimeAsIso"), RUN_COLUMN, TURN_COLUMN, column("Value", "short"), column("Limit", "short"), column("Percent", "percent"), COST_COLUMN], width=WIDTH, height=12),
    ], since="now-7d")


MADE = {
    "runs": runs,
    "run": run,
    "culprits": culprits,
    "spend": spend,
    "latency": latency,
    "tools": tools,
    "events": events,
}
