"""Panels, links and variables of the dashboards of the records."""

import common
from clickhouse_sql import APP, KEY, NONE
from common import GREEN, LOST_STEPS, RATIO_STEPS, RED, board_link, column, dash, uid

DATASOURCE = {"type": "grafana-clickhouse-datasource", "uid": "${datasource}"}
TABLE, TIME_SERIES = ("table", 1), ("timeseries", 0)

# Every dashboard: file name -> title, description.
BOARDS = {
    "runs": ("Runs", "Which runs there were, what they cost, what they lost and what went wrong."),
    "run": ("Run", "One run: its threads, their turns, the tool calls of a turn."),
    "culprits": ("Culprits", "What broke the prompt cache, by the place in the prompt and by what it cost."),
    "spend": ("Spend", "Money by application, model, upstream, key and day, exact for any range and time zone."),
    "latency": ("Latency", "Time to the first token, duration, and what the gateway adds."),
    "tools": ("Tools", "What tools were called, how often they failed and how long they took."),
    "events": ("Loops and caps by run", "Loops, caps and alerts as they happened, with their runs."),
}

# For each the dashboard of the metrics that shows the same live: file name, title, variables to take
# along.
LIVE = {
    "runs": ("overview", "Overview", "${upstream:queryparam}&${app:queryparam}&${model:queryparam}"),
    "run": ("overview", "Overview", ""),
    "culprits": ("prompt-cache", "Prompt cache", "${upstream:queryparam}&${app:queryparam}&${model:queryparam}"),
    "spend": ("cost", "Cost", "${upstream:queryparam}&${app:queryparam}&${model:queryparam}"),
    "latency": ("gateway-health", "Gateway health", "${upstream:queryparam}"),
    "tools": ("loops-and-caps", "Loops and caps", "${app:queryparam}"),
    "events": ("loops-and-caps", "Loops and caps", "${app:queryparam}"),
}

# --- Panels -----------------------------------------------------------------------------------


def target(sql, form, ref="A"):
    query_type, number = form
    return {
        "datasource": DATASOURCE,
        "editorType": "sql",
        "format": number,
        "pluginVersion": "4.0.0",
        "queryType": query_type,
        "rawSql": sql,
        "refId": ref,
    }


def stat(title, description, sql, *how, **more):
    return common.stat(title, description, [target(sql, TABLE)], *how, **more)


def lines(title, description, sql, *how, by=None, **more):
    """Over time. `by` is the label that a series is called after; without one columns are series."""
    if by:
        more["name"] = f"${{__field.labels.{by}}}"
    return common.lines(title, description, [target(sql, TIME_SERIES)], *how, **more)


def table(title, description, sql, columns=(), **more):
    return common.table(title, description, [target(sql, TABLE)], overrides=columns, **more)


# --- Links ------------------------------------------------------------------------------------

# Names and places that clients make up go into links as they are in the data, encoded.
TO_RUN = f"/d/{uid('run')}?${{datasource:queryparam}}&var-run=${{__data.fields.Run:percentencode}}"


def to_run(title="The run", ranged=False, more=""):
    """To a run: with the range of the run itself where the table knows it."""
    span = "&from=${__data.fields.from_ms}&to=${__data.fields.to_ms}" if ranged else "&${__url_time_range}"
    return {"title": title, "url": TO_RUN + span + more, "targetBlank": False}


TO_TURN = to_run("The turn", more="&var-turn=${__data.fields.Turn:percentencode}")
RUN_COLUMN = column("Run", links=[to_run()], width=220)
TURN_COLUMN = column("Turn", links=[TO_TURN], width=120)
COST_COLUMN = column("Cost", "currencyUSD", decimals=4)
LOST_COLUMN = column("Lost", "currencyUSD", steps=LOST_STEPS, decimals=4)
HIT_COLUMN = column("Hit ratio", "percentunit", steps=RATIO_STEPS, decimals=1)
ERROR_STEPS = (GREEN, (1, RED))


def only(title, board, variable, name):
    return [dash(title, board, f"&var-{variable}=${{__data.fields.{name}:percentencode}}")]


# --- Dashboards -------------------------------------------------------------------------------


def variable(name, label, sql, multi=True, current=None):
    """`current` is the value to begin with, where not all are wanted."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"editorType": "sql", "queryType": "sql", "rawSql": sql, "refId": f"Variable-{name}"},
        "refresh": 2 if multi else 1,
        "regex": "",
        "sort": 0,
        "multi": multi,
        "includeAll": multi,
        "current": {"selected": True, "text": current, "value": current} if current
                   else {"selected": True, "text": ["All"], "value": ["$__all"]},
        "hide": 0,
        "options": [],
        "skipUrlSync": False,
    }


def text_variable(name, label, description):
    return {
        "name": name,
        "label": label,
        "description": description,
        "type": "textbox",
        "query": "",
        "current": {"selected": True, "text": "", "value": ""},
        "hide": 0,
        "options": [{"selected": True, "text": "", "value": ""}],
        "skipUrlSync": False,
    }


def listed(expression, text=None):
    """The values that there are in the range, with those hours it has a part of. A backslash is the one
    character that Grafana does not quote; no value with one is offered."""
    shown = f", {text} AS text" if text else ""
    return (f"SELECT DISTINCT {expression} AS value{shown}\nFROM turns_by_hour\n"
            "WHERE hour >= $__fromTime - toIntervalHour(1) AND hour <= $__toTime\n"
            "  AND position(value, '\\\\') = 0\nORDER BY value\nLIMIT 1000")


VAR_APP = variable("app", "Application", listed(APP))
VAR_MODEL = variable("model", "Model", listed(f"ifNull(model, {NONE})"))
VAR_UPSTREAM = variable("upstream", "Upstream", listed("upstream"))
VAR_KEY = variable("key", "Key", listed(KEY, f"substring({KEY}, 1, 12)"))
VAR_ZONE = variable("zone", "Days of", "SELECT time_zone AS value\nFROM system.time_zones\nORDER BY value != 'UTC', value",
                    multi=False, current="UTC")
PAYER = (VAR_APP, VAR_MODEL, VAR_UPSTREAM, VAR_KEY)


def board(name, variables, panels, since="now-24h"):
    title, description = BOARDS[name]
    links = [board_link(other, said, key) for key, (other, said) in BOARDS.items() if key not in (name, "run")]
    live, what, taken = LIVE[name]
    links.append(board_link(f"{what} (Prometheus)", "The same from the metrics, live.", live, taken))
    source = common.source("grafana-clickhouse-datasource", "ClickHouse", "prefixgate-clickhouse")
    return common.board(name, title, description, ["clickhouse"], links, [], [source, *variables], panels, since, refresh="1m")
