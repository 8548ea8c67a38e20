"""The parts that queries of the records have in common: what counts, what is chosen, sums, quantiles.

What is asked are the views `turns`, `tool_calls`, `events` and `turns_by_hour`, which have each record
once. Money is added up as integers of pico-USD and divided for display alone. What counts is what
`store::totals` says, and a test compares.
"""

# What stands for an absent application, model or key, in lists and filters.
NONE = "'(none)'"
APP = f"ifNull(app, {NONE})"
MODEL = f"coalesce(model_served, model_requested, {NONE})"
KEY = f"ifNull(credential, {NONE})"

# The requests that cost something: turns, and those that keep a prefix warm.
COSTLY = "kind IN ('turn', 'keep_warm')"
FORWARDED = "outcome NOT IN ('refused', 'client_error')"
IS_TURN = f"(kind = 'turn' AND attempt <= 1 AND {FORWARDED})"
IS_ERROR = "(kind = 'turn' AND outcome NOT IN ('ok', 'client_abort'))"
IS_BREAK = "(kind = 'turn' AND (ifNull(verdict, '') IN ('partial', 'miss') OR (isNotNull(verdict) AND ifNull(lost_tokens, 0) > 0)))"
NOTHING_TOLD = "isNull(cost_pico) AND isNull(uncached) AND isNull(read) AND isNull(write_5m) AND isNull(write_1h) AND isNull(write_30m) AND isNull(write_12h) AND isNull(output)"
IS_BILLABLE = f"NOT ({NOTHING_TOLD} AND (outcome = 'upstream_error' AND ifNull(status, 0) >= 400 OR NOT {FORWARDED}))"
WITHOUT_CACHE = "if(kind = 'keep_warm', toNullable(toUInt64(0)), cost_no_cache_pico)"
# A provider tells one pair of lifetimes or the other.
PROMPT = ("(toUInt128(uncached) + read + coalesce(toUInt128(write_5m) + write_1h + write_30m + write_12h,"
          " toUInt128(write_5m) + write_1h, toUInt128(write_30m) + write_12h))")

# A path in which places of the growing conversation are all one.
PATH = r"if(startsWith(first_changed, 'messages['), replaceRegexpAll(first_changed, '\\[[0-9]+\\]', '[*]'), first_changed)"


def usd(pico):
    return f"{pico} / 1e12"


def chosen(expression, variable):
    """True where the value is among those of a variable, or all are wanted."""
    return f"$__conditionalAll({expression} IN (${{{variable}:sqlstring}}), ${variable})"


def every(*conditions):
    return "\n  AND ".join(conditions)


OF_APP = chosen(APP, "app")
OF_MODEL = chosen(MODEL, "model")
OF_UPSTREAM = chosen("upstream", "upstream")
OF_KEY = chosen(KEY, "key")
OF_PAYER = (OF_APP, OF_MODEL, OF_UPSTREAM, OF_KEY)
IN_RANGE = "$__timeFilter_ms(started)"

# From three days on sums by hour are asked, and single records only for the hours that the range has a
# part of.
LONG = "dateDiff('hour', $__fromTime, $__toTime) >= 72"
FIRST_HOUR = "toStartOfHour(toDateTime($__fromTime_ms + toIntervalMillisecond(3599999), 'UTC'))"
AFTER_LAST_HOUR = "toStartOfHour(toDateTime($__toTime_ms + toIntervalMillisecond(1), 'UTC'))"

# Name -> from the sums of an hour, from a record.
MEASURES = {
    "turns": ("turns", f"toUInt64{IS_TURN}"),
    "errors": ("errors", f"toUInt64{IS_ERROR}"),
    "unpriced": ("unpriced", f"toUInt64({IS_BILLABLE} AND isNull(cost_pico))"),
    "cost_pico": ("cost_pico", "toUInt128(cost_pico)"),
    "compared_pico": ("compared_pico", f"if(isNull({WITHOUT_CACHE}), NULL, toUInt128(cost_pico))"),
    "cost_no_cache_pico": ("cost_no_cache_pico", f"if(isNull(cost_pico), NULL, toUInt128({WITHOUT_CACHE}))"),
    "lost_pico": ("lost_pico", f"if({IS_BREAK}, toUInt128(ifNull(lost_pico, 0)), 0)"),
    "uncached": ("uncached", "toUInt128(uncached)"),
    "read": ("read", "toUInt128(read)"),
    "write_5m": ("write_5m", "toUInt128(write_5m)"),
    "write_1h": ("write_1h", "toUInt128(write_1h)"),
    "write_30m": ("write_30m", "toUInt128(write_30m)"),
    "write_12h": ("write_12h", "toUInt128(write_12h)"),
    "output": ("output", "toUInt128(output)"),
    "prompt": ("prompt", f"ifNull({PROMPT}, 0)"),
    "prompt_read": ("prompt_read", f"if(isNull({PROMPT}), 0, ifNull(toUInt128(read), 0))"),
}


def summed(*measures, by=(), long=LONG):
    """The source of sums: rows with a time `t`, what is grouped by, and the measures; exact for any
    range."""
    groups = {"app": (APP, APP), "model": (f"ifNull(model, {NONE})", MODEL), "upstream": ("upstream", "upstream"),
              "key": (KEY, KEY)}
    hours = [f"{groups[name][0]} AS of_{name}" for name in by] + [f"{MEASURES[name][0]} AS s_{name}" for name in measures]
    turns = [f"{groups[name][1]} AS of_{name}" for name in by] + [f"{MEASURES[name][1]} AS s_{name}" for name in measures]
    of_hours = every(long, f"hour >= {FIRST_HOUR}", f"hour < {AFTER_LAST_HOUR}", OF_APP,
                     chosen(f"ifNull(model, {NONE})", "model"), OF_UPSTREAM, OF_KEY)
    of_turns = every(IN_RANGE, COSTLY, f"(NOT ({long}) OR started < {FIRST_HOUR} OR started >= {AFTER_LAST_HOUR})", *OF_PAYER)
    return (f"(\n  SELECT hour AS t, {', '.join(hours)}\n  FROM turns_by_hour\n  WHERE {of_hours}\n"
            f"  UNION ALL\n  SELECT toDateTime(started, 'UTC') AS t, {', '.join(turns)}\n  FROM turns\n  WHERE {of_turns}\n)")


def ratio(part, whole):
    return f"if({whole} = 0, NULL, {part} / {whole})"


BUCKET = f"toStartOfInterval(t, toIntervalSecond(greatest($__interval_s, if({LONG}, 3600, 1))))"
RAW_BUCKET = "$__timeInterval(started)"
ORDER = "ORDER BY time"


def over_time(value, measures, by=None):
    """A value over time, for each of a group."""
    group = f", of_{by} AS {by}" if by else ""
    grouped = f"time, {by}" if by else "time"
    return f"SELECT {BUCKET} AS time{group}, {value}\nFROM {summed(*measures, by=(by,) if by else ())}\nGROUP BY {grouped}\n{ORDER}"


def of_turns(condition, variable_name):
    """Calls of the turns for which a condition on a variable holds. A turn starts before its calls."""
    around = "started >= $__fromTime - toIntervalDay(1) AND started <= $__toTime + toIntervalSecond(1)"
    return f"$__conditionalAll(turn_id IN (SELECT id FROM turns WHERE {around} AND {condition} IN (${{{variable_name}:sqlstring}})), ${variable_name})"


def quantiles(measure, by=None):
    """Quantiles over time in seconds, from the sketches of an hour or, for a short range, from records;
    `by` gives one line for each of a group, of one quantile."""
    level = "quantilesTDigest{}(0.5, 0.9, 0.95, 0.99)({})"
    group = {"upstream": "upstream", "model": "model"}.get(by)
    hours, turns = (f"{group}, ", f"{MODEL if by == 'model' else group} AS {group}, ") if group else ("", "")
    hour_group = f"ifNull(model, {NONE}) AS model, " if by == "model" else hours
    sketches = f"""(
    SELECT toStartOfInterval(hour, toIntervalSecond(greatest($__interval_s, 3600))) AS time, {hour_group}{level.format('MergeState', measure)} AS sketch
    FROM turns_by_hour
    WHERE {every(LONG, "kind = 'turn'", "$__timeFilter(hour)", OF_APP, chosen(f"ifNull(model, {NONE})", "model"), OF_UPSTREAM, OF_KEY)}
    GROUP BY ALL
    UNION ALL
    SELECT {RAW_BUCKET} AS time, {turns}{level.format('State', measure)} AS sketch
    FROM turns
    WHERE {every(f"NOT ({LONG})", "kind = 'turn'", IN_RANGE, *OF_PAYER)}
    GROUP BY ALL
  )"""
    shown = 'levels[3] / 1e6 AS p95' if group else 'levels[1] / 1e6 AS "p50", levels[2] / 1e6 AS "p90", levels[3] / 1e6 AS "p95", levels[4] / 1e6 AS "p99"'
    return f"""SELECT time, {hours}{shown}
FROM (
  SELECT time, {hours}{level.format('Merge', 'sketch')} AS levels
  FROM {sketches}
  GROUP BY ALL
)
WHERE NOT isNaN(levels[1])
ORDER BY time"""


# Days are taken from the sums by hour where they begin with an hour, all year.
WHOLE_HOURS = "timeZoneOffset(toDateTime({at}, ${{zone:sqlstring}})) % 3600 = 0"
LONG_OF_DAYS = " AND ".join([LONG, *(WHOLE_HOURS.format(at=at) for at in (1767225600, 1782864000))])
