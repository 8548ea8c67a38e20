"""The dashboards of the metrics: overview, cost, prompt cache, loops and caps, gateway health."""

import common
from common import GREEN, LOST_STEPS, RATIO_STEPS, RED, WIDTH, YELLOW, board_link, dash, row

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

# Every dashboard: file name -> title, description.
BOARDS = {
    "overview": ("Overview", "What agents cost, what the prompt cache saves, and what goes wrong."),
    "cost": ("Cost", "Money by application, model and upstream, its limits and its forecast."),
    "prompt-cache": ("Prompt cache", "What is read from the cache, what breaks it and what that costs."),
    "loops-and-caps": ("Loops and caps", "Agents that go round in circles, and the limits they meet."),
    "gateway-health": ("Gateway health", "Upstreams, latency, the process, and the way of the records."),
}

# For each the dashboard of the records that goes deeper: file name, title, variables to take along.
DEEPER = {
    "overview": ("runs", "Runs", "${upstream:queryparam}&${app:queryparam}&${model:queryparam}"),
    "cost": ("spend", "Spend by key and day", "${upstream:queryparam}&${app:queryparam}&${model:queryparam}"),
    "prompt-cache": ("culprits", "Culprits by path", "${upstream:queryparam}&${app:queryparam}&${model:queryparam}"),
    "loops-and-caps": ("events", "Loops and caps by run", "${app:queryparam}"),
    "gateway-health": ("latency", "Slowest turns", "${upstream:queryparam}"),
}


# --- Queries ----------------------------------------------------------------------------------

PAYER = 'upstream=~"$upstream",app=~"$app",model=~"$model"'
UPSTREAM = 'upstream=~"$upstream"'
APP = 'app=~"$app"'
OK = 'outcome="ok"'
READ = 'kind="read"'
WRITTEN = 'kind=~"write_.*"'
OUTPUT = 'kind="output"'
INPUT = 'kind!="output"'
FAILED = 'status="failed"'
ANSWERED = 'status=~"ok|failed"'


def series(name, *matchers):
    return name + "{" + ",".join(m for m in matchers if m) + "}"


def rate(name, *matchers, by="", window="$__rate_interval"):
    return summed("rate", name, matchers, by, window)


def total(name, *matchers, by=""):
    """What was counted in the range that is looked at."""
    return summed("increase", name, matchers, by, "$__range")


def summed(function, name, matchers, by, window):
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped} ({function}({series(name, *matchers)}[{window}]))"


def named(expr):
    """Requests without an application have an empty label, which no legend shows."""
    return f'label_replace({expr}, "app", "(none)", "app", "")'


def happened(expr, label, counter):
    """Only what is above zero, so that a legend of many causes names those that matter; one line at
    zero where nothing is."""
    nothing = f'label_replace(sum({counter}) * 0, "{label}", "(none)", "", "")'
    return f"{expr} > 0 or on () {nothing}"


def quantile(q, name, *matchers, by=""):
    labels = f"{by}, le" if by else "le"
    return f"histogram_quantile({q}, {rate(name + '_bucket', *matchers, by=labels)})"


def hit_ratio(matchers=(), by="", window="$__rate_interval", function="rate"):
    read = summed(function, "prefixgate_tokens_total", (*matchers, READ), by, window)
    all_input = summed(function, "prefixgate_tokens_total", (*matchers, INPUT), by, window)
    return f"{read} / ({all_input} > 0)"


# --- Panels -----------------------------------------------------------------------------------


def target(expr, legend="", ref="A", instant=False, form="time_series"):
    return {
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": expr,
        "format": form,
        "instant": instant,
        "legendFormat": legend or "__auto",
        "range": not instant,
        "refId": ref,
    }


def targets(queries, **more):
    if isinstance(queries, str):
        queries = [(queries, "")]
    return [target(expr, legend, ref=chr(ord("A") + n), **more) for n, (expr, legend) in enumerate(queries)]


def stat(title, description, expr, *how, **more):
    """One number, as of now."""
    return common.stat(title, description, targets(expr, instant=True), *how, **more)


def lines(title, description, queries, *how, limit=None, **more):
    """Over time. `limit` names a series of limits, drawn as a dashed red line."""
    queries = [(queries, "")] if isinstance(queries, str) else list(queries)
    if limit:
        queries.append((limit, "limit"))
        more["overrides"] = [common.limit_style("limit")]
    return common.lines(title, description, targets(queries), *how, **more)


def table(title, description, expr, unit, rename, width=12, height=8, drop=(), data_links=()):
    value = rename.get("Value")
    gauge = unit != "string"
    made = common.table(title, description, targets(expr, instant=True, form="table"), width, height, sort_by=value,
                        overrides=[common.column(value, unit, gauge=gauge)] if value else [], data_links=data_links)
    made["transformations"] = [{
        "id": "organize",
        "options": {
            "excludeByName": {"Time": True, **{name: True for name in drop}},
            "indexByName": {name: n for n, name in enumerate(rename)},
            "renameByName": rename,
        },
    }]
    return made


def heatmap(title, description, name, *matchers, width=12, height=8):
    options = {
        "calculate": False,
        "cellGap": 1,
        "color": {
            "exponent": 0.5, "fill": "dark-orange", "mode": "scheme", "reverse": False,
            "scale": "exponential", "scheme": "Oranges", "steps": 64,
        },
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "showValue": "never",
        "tooltip": {"mode": "single", "showColorScale": False, "yHistogram": True},
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": "s"},
    }
    defaults = {
        "custom": {"hideFrom": {"legend": False, "tooltip": False, "viz": False}, "scaleDistribution": {"type": "linear"}},
    }
    queries = [target(rate(name + "_bucket", *matchers, by="le"), "{{le}}", form="heatmap")]
    return common.panel("heatmap", title, description, width, height, queries, options, defaults)


# --- Dashboards -------------------------------------------------------------------------------


def variable(name, label, metric):
    query = f"label_values({metric}, {name})"
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"qryType": 1, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
        "refresh": 2,
        "regex": "",
        "sort": 1,
        "multi": True,
        "includeAll": True,
        # Also matches what has no such label, which a list of all values would not.
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "hide": 0,
        "options": [],
        "skipUrlSync": False,
    }


def board(name, variables, panels):
    title, description = BOARDS[name]
    links = [board_link(other, said, key) for key, (other, said) in BOARDS.items() if key != name]
    deeper, what, taken = DEEPER[name]
    links.append(board_link(f"{what} (ClickHouse)", "The records, one by one.", deeper, taken))
    annotations = [{
        "name": "Alerts",
        "datasource": DATASOURCE,
        "enable": True,
        "hide": False,
        "iconColor": RED,
        "expr": 'ALERTS{alertname=~"Prefixgate.*",alertstate="firing",severity="critical"}',
        "step": "60s",
        "titleFormat": "{{alertname}}",
        "tagKeys": "app,upstream,instance",
    }]
    source = common.source("prometheus", "Prometheus", "prefixgate-prometheus")
    return common.board(name, title, description, ["prometheus"], links, annotations, [source, *variables], panels)


VAR_UPSTREAM = ("upstream", "Upstream", "prefixgate_requests_total")
VAR_APP = ("app", "Application", "prefixgate_turns_total")
VAR_MODEL = ("model", "Model", "prefixgate_turns_total")


def variables(*which):
    return [variable(*one) for one in which]


COST = "prefixgate_cost_usd_total"
PLAIN = "prefixgate_cost_without_cache_usd_total"
TOKENS = "prefixgate_tokens_total"
TURNS = "prefixgate_turns_total"
LOST = "prefixgate_cache_lost_usd_total"
REQUESTS = "prefixgate_requests_total"

SAVED = f"{total(PLAIN, PAYER)} - {total(COST, PAYER)}"


def overview():
    to_cost = [dash("Cost of this application", "cost", "&var-app=${__field.labels.app}")]
    to_cache = [dash("Its prompt cache", "prompt-cache", "&var-app=${__field.labels.app}")]
    return board("overview", variables(VAR_UPSTREAM, VAR_APP, VAR_MODEL), [
        stat("Cost", "Cost of the priced turns in the range that is shown.", total(COST, PAYER), "currencyUSD",
             width=4, decimals=2, links=[dash("Cost", "cost")]),
        stat("Saved by the prompt cache", "What the same turns would have cost without any cache, less what they cost. Negative where writes were never read.",
             SAVED, "currencyUSD", (RED, (0, GREEN)), decimals=2, links=[dash("Prompt cache", "prompt-cache")]),
        stat("Cache-hit ratio", "Share of the input tokens that were read from the provider's prompt cache.",
             hit_ratio((PAYER,), window="$__range", function="increase"), "percentunit", RATIO_STEPS, decimals=1),
        stat("Lost by broken prefixes", "What was cached and had to be paid again, less what reading it would have cost.",
             total(LOST, APP), "currencyUSD", LOST_STEPS, decimals=2, links=[dash("Culprits", "prompt-cache")]),
        stat("Loops", "Loops that were found, or went on to a next step.", total("prefixgate_loops_total"), "short",
             (GREEN, (0.5, RED)), decimals=0, links=[dash("Loops and caps", "loops-and-caps")]),
        stat("Active runs", "Runs with a turn in the last five minutes.", "sum(prefixgate_runs_active)", "short", decimals=0),

        lines("Cost per hour by application", "USD per hour at the pace of each moment. The dashed line is the limit of the alert PrefixgateCostPerHour, for one application.",
              [(f"{named(rate(COST, PAYER, by='app'))} * 3600", "{{app}}")], "currencyUSD", stack=True, limit="prefixgate:limit:cost_hour_usd", data_links=to_cost),
        lines("Cache-hit ratio by application", "Share of the input tokens that were read from the cache.",
              [(named(f"({hit_ratio((PAYER,), by='app')})"), "{{app}}")], "percentunit", maximum=1, data_links=to_cache),
        lines("Tokens by kind", "Tokens a second, in disjoint kinds. Writes cost more than plain input, reads a tenth.",
              [(rate(TOKENS, PAYER, by="kind"), "{{kind}}")], "short", stack=True),
        lines("Lost by reason", "USD per hour that broken prefixes cost, by what broke them.",
              [(happened(f"{rate(LOST, APP, by='reason')} * 3600", "reason", series(LOST, APP)), "{{reason}}")], "currencyUSD", stack=True, bars=True),
        lines("Turns by outcome", "Answered model requests a second, by how they ended.",
              [(rate(TURNS, PAYER, by="outcome"), "{{outcome}}")], "reqps", stack=True),
        lines("Time to first token", "From the request to the first content of the answer, gateway included.",
              [(quantile(q, "prefixgate_time_to_first_token_seconds", UPSTREAM, by="upstream"), f"{{{{upstream}}}} p{int(q * 100)}") for q in (0.5, 0.95)], "s"),
        table("Firing alerts", "Alerts of config/prometheus/rules.yml that fire now. RUNBOOK.md beside it says what to do.",
              'ALERTS{alertname=~"Prefixgate.*",alertstate="firing"} or on () vector(0)', "string",
              {"alertname": "Alert", "severity": "Severity", "app": "Application", "upstream": "Upstream", "instance": "Gateway", "Value": "Firing"},
              width=WIDTH, drop=("__name__", "alertstate", "job")),
    ])


def cost():
    table_labels = {"app": "Application", "upstream": "Upstream", "model": "Model", "Value": "Cost"}
    return board("cost", variables(VAR_UPSTREAM, VAR_APP, VAR_MODEL), [
        stat("In this range", "Cost of the priced turns in the range that is shown.", total(COST, PAYER), "currencyUSD", decimals=2),
        stat("Last hour", "All applications that are chosen, together.", f"sum(app:prefixgate_cost_usd:increase1h{{{APP}}})", "currencyUSD", decimals=2),
        stat("Last 24 hours", "All applications that are chosen, together.", f"sum(app:prefixgate_cost_usd:increase24h{{{APP}}})", "currencyUSD", decimals=2),
        stat("Forecast for 24 hours", "What a day costs if it goes on like the last two hours.", f"sum(app:prefixgate_cost_usd:forecast24h{{{APP}}})", "currencyUSD", decimals=2),
        stat("Saved by the cache", "What the same turns would have cost without any cache, less what they cost.", SAVED, "currencyUSD", (RED, (0, GREEN)), decimals=2),
        stat("Saved share", "The same as a share of what they would have cost.", f"1 - {total(COST, PAYER)} / ({total(PLAIN, PAYER)} > 0)", "percentunit", (RED, (0, YELLOW), (0.5, GREEN)), decimals=1),

        row("By application"),
        lines("Cost per hour", "Cost of the last hour at each moment, as the alert PrefixgateCostPerHour sees it, with its limit for one application.",
              [(named(f"app:prefixgate_cost_usd:increase1h{{{APP}}}"), "{{app}}")], "currencyUSD", limit="prefixgate:limit:cost_hour_usd",
              data_links=[dash("Its prompt cache", "prompt-cache", "&var-app=${__field.labels.app}")]),
        lines("Last 24 hours, and forecast", "Cost of the last 24 hours at each moment, and what a day would cost at the pace of two hours; with the daily limit for one application.",
              [(named(f"app:prefixgate_cost_usd:increase24h{{{APP}}}"), "{{app}} 24 h"), (named(f"app:prefixgate_cost_usd:forecast24h{{{APP}}}"), "{{app}} forecast")],
              "currencyUSD", limit="prefixgate:limit:cost_day_usd"),
        lines("Cost of a turn", "Average over the answered turns.",
              [(named(f"({rate(COST, PAYER, by='app')} / ({rate(TURNS, PAYER, OK, by='app')} > 0))"), "{{app}}")], "currencyUSD"),
        lines("With and without cache", "USD per hour: what is paid, and what the same turns would cost if nothing were cached.",
              [(f"{rate(COST, PAYER)} * 3600", "paid"), (f"{rate(PLAIN, PAYER)} * 3600", "without cache")], "currencyUSD"),

        row("By model and upstream"),
        lines("Cost per hour by model", "USD per hour at the pace of each moment. Models that the price data does not know share `other`.",
              [(f"{rate(COST, PAYER, by='model')} * 3600", "{{model}}")], "currencyUSD", stack=True),
        table("Cost by application, upstream and model", "In the range that is shown.", f"{named(total(COST, PAYER, by='upstream, model, app'))} > 0", "currencyUSD", table_labels,
              data_links=[dash("Only this model", "cost", "&var-model=${__data.fields.Model}")]),
        lines("Tokens by kind", "Tokens a second, in disjoint kinds.", [(rate(TOKENS, PAYER, by="kind"), "{{kind}}")], stack=True),
        lines("Output tokens of a turn", "Average over the turns, by model. Output costs most.",
              [(f"{rate(TOKENS, PAYER, OUTPUT, by='model')} / ({rate(TURNS, PAYER, by='model')} > 0)", "{{model}}")]),

        row("What the sums do not know"),
        lines("Turns without a price", "Their cost is in no sum here, and caps on money do not know them. Add a [[price]] for the model, which the log names.",
              [(f"sum by (upstream, model) (increase({series('prefixgate_unpriced_turns_total', UPSTREAM)}[$__rate_interval]))", "{{upstream}} {{model}}")], bars=True, steps=(GREEN, (1, RED))),
        lines("Turns that ended before their usage", "The answer broke off: their tokens are a lower bound.",
              [(f"sum by (upstream) (increase({series('prefixgate_usage_incomplete_total', UPSTREAM)}[$__rate_interval]))", "{{upstream}}")], bars=True),
    ])


def prompt_cache():
    return board("prompt-cache", variables(VAR_UPSTREAM, VAR_APP, VAR_MODEL), [
        stat("Cache-hit ratio", "Share of the input tokens that were read from the cache.", hit_ratio((PAYER,), window="$__range", function="increase"), "percentunit", RATIO_STEPS, decimals=1),
        stat("Reads of a written token", "How often a token that was written is read. Below 0.3 a five-minute write does not pay; a healthy loop reaches ten and more.",
             f"{total(TOKENS, PAYER, READ)} / ({total(TOKENS, PAYER, WRITTEN)} > 0)", "short", (RED, (0.3, YELLOW), (2, GREEN)), decimals=1),
        stat("Saved", "What the same turns would have cost without any cache, less what they cost.", SAVED, "currencyUSD", (RED, (0, GREEN)), decimals=2),
        stat("Lost", "What broken prefixes cost.", total(LOST, APP), "currencyUSD", LOST_STEPS, decimals=2),
        stat("Lost tokens", "Tokens that were in the cache and were not read.", total("prefixgate_cache_lost_tokens_total", APP), "short", (GREEN, (1, YELLOW)), decimals=0),
        stat("Written twice", "Turns that wrote a prefix which another turn was writing at the same time. The helper warm_first avoids that.",
             total("prefixgate_cache_duplicate_writes_total"), "short", (GREEN, (1, YELLOW)), decimals=0),

        row("How much is read"),
        lines("Cache-hit ratio by application", "Share of the input tokens that were read from the cache. A step down is most often a new version of an agent.",
              [(named(f"({hit_ratio((PAYER,), by='app')})"), "{{app}}")], "percentunit", maximum=1),
        lines("Cache-hit ratio by model", "The same by model.", [(hit_ratio((PAYER,), by="model"), "{{model}}")], "percentunit", maximum=1),
        lines("Input by kind", "Shares of what is paid plainly, written for five minutes or an hour, and read.",
              [(rate(TOKENS, PAYER, INPUT, by="kind"), "{{kind}}")], "short", stack=True, percent=True),
        lines("Verdicts", "Turns a second by what became of the cache. hit and extended are well, cold is a first turn; partial and miss have a reason.",
              [(rate("prefixgate_cache_verdicts_total", by="status"), "{{status}}")], "reqps", stack=True),

        row("What breaks it"),
        lines("Lost by reason", "USD per hour that broken prefixes cost, by what broke them.",
              [(happened(f"{rate(LOST, APP, by='reason')} * 3600", "reason", series(LOST, APP)), "{{reason}}")], "currencyUSD", stack=True, bars=True),
        table("Culprits", "Losses in the range that is shown. `prefixgate audit` names the place in the prompt.",
              f"topk(20, {named(total(LOST, APP, by='app, reason'))})", "currencyUSD", {"app": "Application", "reason": "Reason", "Value": "Lost"},
              data_links=[dash("Only this application", "prompt-cache", "&var-app=${__data.fields.Application}")]),
        lines("Misses by reason", "Turns a second that read less than they could, by reason.",
              [(rate("prefixgate_cache_verdicts_total", 'status=~"partial|miss"', by="reason"), "{{reason}}")], "reqps", stack=True),
        lines("The provider's own diagnosis", "Where the provider says why it missed: whether it says the same as the verdict (none: it says nothing that can be compared).",
              [(rate("prefixgate_native_diagnosis_total", by="agrees"), "{{agrees}}")], "reqps", stack=True),

        row("Breakpoints and helpers"),
        lines("Breakpoints by who set them", "Breakpoints a second. planned: a dry run. refused: the upstream did not take them, and the request went again without.",
              [(rate("prefixgate_cache_markers_total", by="by"), "{{by}}")], "short"),
        lines("Turns without a breakpoint of ours", "Turns a second to which none was added, by reason.",
              [(rate("prefixgate_cache_plan_skipped_total", by="reason"), "{{reason}}")], "reqps", stack=True),
        lines("Saved by helpers", "USD per hour that the opt-in helpers save, less what they overspend.",
              [(f"({rate('prefixgate_helper_saved_usd_total', by='helper')} - {rate('prefixgate_helper_overspent_usd_total', by='helper')}) * 3600", "{{helper}}")], "currencyUSD", width=WIDTH, minimum=None),
    ])


def loops_and_caps():
    return board("loops-and-caps", variables(VAR_UPSTREAM, VAR_APP, VAR_MODEL), [
        stat("Loops", "Loops that were found, or went on to a next step.", total("prefixgate_loops_total"), "short", (GREEN, (0.5, RED)), decimals=0),
        stat("Requests refused by caps", "In the range that is shown.", total("prefixgate_cap_refusals_total"), "short", (GREEN, (0.5, YELLOW)), decimals=0),
        stat("Caps that did not hold", "Requests whose price nobody knows, which a cap on money let pass.", total("prefixgate_caps_unenforced_total"), "short", (GREEN, (0.5, RED)), decimals=0),
        stat("Active runs", "Runs with a turn in the last five minutes.", "sum(prefixgate_runs_active)", "short", decimals=0),
        stat("Sub-agents", "Threads that another thread began, in the range that is shown.", total("prefixgate_threads_started_total", 'agent="sub"'), "short", decimals=0),
        stat("Failed tool calls", "Share of the answered tool calls whose result was an error.",
             f"{total('prefixgate_tool_calls_total', FAILED)} / ({total('prefixgate_tool_calls_total', ANSWERED)} > 0)", "percentunit", (GREEN, (0.2, YELLOW), (0.5, RED)), decimals=1),

        row("Loops"),
        lines("Loops by detector", "same_call: the same call fails alike. same_error: one tool, the same error. cycle: calls that take turns. no_progress: the same result again.",
              [("sum by (detector) (increase(prefixgate_loops_total[$__rate_interval]))", "{{detector}}")], bars=True, stack=True, steps=(GREEN, (1, RED))),
        lines("Loops by what was done", "warn: told. hint: a text for the model. block: refused. answer: the turn was ended.",
              [("sum by (action) (increase(prefixgate_loops_total[$__rate_interval]))", "{{action}}")], bars=True, stack=True),
        lines("Tool calls", "Calls a second by how they stand: asked, then ok, failed, unanswered or incomplete; undeclared and invalid_input besides.",
              [(rate("prefixgate_tool_calls_total", by="status"), "{{status}}")], "cps"),
        lines("Hints", "Texts that were put into a history because of a loop.", [("sum(increase(prefixgate_hints_total[$__rate_interval]))", "hints")], bars=True),

        row("Caps"),
        lines("Refusals by cap", "Requests that a cap refused, and in which scope: of a run, of unnamed requests of a key in a day, of a key in a day.",
              [(happened("sum by (cap, scope) (increase(prefixgate_cap_refusals_total[$__rate_interval]))", "cap", "prefixgate_cap_refusals_total"), "{{cap}} {{scope}}")], bars=True, stack=True),
        lines("Shares of caps that were reached", "Runs and keys that came to a share of a cap for the first time, in per cent.",
              [(happened("sum by (cap, level) (increase(prefixgate_cap_levels_total[$__rate_interval]))", "cap", "prefixgate_cap_levels_total"), "{{cap}} {{level}} %")], bars=True, stack=True),
        lines("Books of the caps", "Requests while Redis (caps.redis) did not answer, by gateway: refused, or decided on by the gateway's own books, as caps.redis_down says. Not booked: ended, and not in the shared books yet.",
              [("sum by (instance) (increase(prefixgate_ledger_unavailable_total[$__rate_interval]))", "{{instance}} refused"),
               ("sum by (instance) (increase(prefixgate_ledger_fallback_total[$__rate_interval]))", "{{instance}} own books"),
               ("prefixgate_ledger_waiting", "{{instance}} not booked")], bars=True, steps=(GREEN, (1, RED))),
        lines("Alerts to webhooks", "Alerts that the gateways send by themselves, by what became of them.",
              [("sum by (result) (increase(prefixgate_alerts_total[$__rate_interval]))", "{{result}}")], bars=True, stack=True),

        row("Agents"),
        lines("Threads that began", "Threads a minute, by who began them.", [(f"{rate('prefixgate_threads_started_total', by='agent')} * 60", "{{agent}}")], "short", stack=True),
        lines("Turns by application", "Turns a minute.", [(f"{named(rate(TURNS, PAYER, by='app'))} * 60", "{{app}}")], "short", stack=True),
        lines("Repeated requests", "Turns a minute that repeat the one before them, since the client tried again.",
              [(f"{rate('prefixgate_retries_total', UPSTREAM, by='upstream')} * 60", "{{upstream}}")], "short", width=WIDTH),
    ])


def gateway_health():
    job = 'job="prefixgate"'
    return board("gateway-health", variables(VAR_UPSTREAM), [
        stat("Gateways", "That answer Prometheus.", f"sum(up{{{job}}})", "short", (RED, (1, GREEN)), decimals=0, width=3),
        stat("Uptime", "Of the gateway that started last.", "min(time() - process_start_time_seconds{job=\"prefixgate\"})", "s", (YELLOW, (600, GREEN)), width=3),
        stat("In flight", "Requests under way.", "sum(prefixgate_requests_in_flight)", "short", width=3, decimals=0),
        stat("Connections", "Open client connections.", "sum(prefixgate_client_connections)", "short", width=3, decimals=0),
        stat("Threads", "Conversation threads remembered.", "sum(prefixgate_threads)", "short", width=3, decimals=0),
        stat("Overhead p99", "What the gateway adds to 99 of 100 requests, in the range that is shown.",
             "histogram_quantile(0.99, sum by (le) (increase(prefixgate_overhead_seconds_bucket[$__range])))", "s", (GREEN, (0.01, YELLOW), (0.05, RED)), width=3),
        stat("Records lost", "Records that are not in the gateways' trace databases.", total("prefixgate_records_dropped_total"), "short", (GREEN, (0.5, RED)), width=3, decimals=0),
        stat("Errors", "Share of requests that fail by fault of their upstream: the worst upstream, over five minutes.",
             f"max(upstream:prefixgate_errors:ratio5m{{{UPSTREAM}}})", "percentunit", (GREEN, (0.01, YELLOW), (0.05, RED)), width=3, decimals=1),

        row("Upstreams"),
        lines("Requests by outcome", "Requests a second, of all kinds.", [(rate(REQUESTS, UPSTREAM, by="outcome"), "{{outcome}}")], "reqps", stack=True),
        lines("Requests by kind", "Requests a second: turns, counts of tokens, lists of models, batches, probes, pings that keep a prefix warm.",
              [(rate(REQUESTS, UPSTREAM, by="kind"), "{{kind}}")], "reqps", stack=True),
        lines("Failing share by upstream", "Unreachable, cut off, 429, 5xx, errors inside of streams. The dashed line is the limit of the alert PrefixgateUpstreamErrors.",
              [(f"upstream:prefixgate_errors:ratio5m{{{UPSTREAM}}}", "{{upstream}}")], "percentunit", limit="prefixgate:limit:error_ratio"),
        lines("Errors of upstreams by class", "Error answers a second. 4xx (but 429) are mostly wrong requests.",
              [(rate("prefixgate_upstream_errors_total", UPSTREAM, by="upstream, class"), "{{upstream}} {{class}}")], "reqps", stack=True),
        lines("Time to the head of the answer", "From the request to the head of the answer.",
              [(quantile(q, "prefixgate_upstream_head_seconds", UPSTREAM, by="upstream"), f"{{{{upstream}}}} p{int(q * 100)}") for q in (0.5, 0.95)], "s"),
        lines("Duration of turns", "From the request to the end of the answer.",
              [(quantile(q, "prefixgate_turn_duration_seconds", UPSTREAM, by="upstream"), f"{{{{upstream}}}} p{int(q * 100)}") for q in (0.5, 0.95)], "s"),

        row("What the gateway adds"),
        lines("Overhead", "From the last byte of a request to its way upstream. The dashed line is the limit of the alert PrefixgateOverhead.",
              [(quantile(q, "prefixgate_overhead_seconds", UPSTREAM), f"p{q * 100:g}") for q in (0.5, 0.9, 0.99)], "s", limit="prefixgate:limit:overhead_seconds"),
        heatmap("Overhead, distribution", "Requests a second by what the gateway added to them.", "prefixgate_overhead_seconds", UPSTREAM),
        lines("Not looked at", "Turns a second whose body was passed on without being read, by reason.", [(rate("prefixgate_not_inspected_total", by="reason"), "{{reason}}")], "reqps", stack=True),
        lines("Warnings on turns", "Turns a second with a warning, by its word.", [(rate("prefixgate_warnings_total", by="warning"), "{{warning}}")], "reqps", stack=True),

        row("Process"),
        lines("CPU", "Cores that are busy, by gateway.", [(f"rate(process_cpu_seconds_total{{{job}}}[$__rate_interval])", "{{instance}}")], "short", width=8),
        lines("Memory", "Resident memory, by gateway.", [(f"process_resident_memory_bytes{{{job}}}", "{{instance}}")], "bytes", width=8),
        lines("File descriptors", "Share of the allowed file descriptors that are open. Each connection takes one.",
              [(f"process_open_fds{{{job}}} / process_max_fds{{{job}}}", "{{instance}}")], "percentunit", width=8, steps=(GREEN, (0.8, RED))),
        lines("Load", "Requests under way and connections, by gateway.",
              [("prefixgate_requests_in_flight", "{{instance}} requests"), ("prefixgate_client_connections", "{{instance}} connections")]),
        table("Versions and settings", "What each gateway runs and how it is set up.",
              "prefixgate_config_info * on (instance, job) group_left (version) prefixgate_build_info", "string",
              {"instance": "Gateway", "version": "Version", "cache": "Cache", "loops": "Loops", "caps": "Caps", "clickhouse": "ClickHouse", "otlp": "OTLP",
               "capture": "Capture", "webhooks": "Webhooks"}, drop=("job", "__name__", "Value")),

        row("Records"),
        lines("Written and lost", "Records a second into the gateways' own trace databases, and those that were lost, by reason.",
              [(rate("prefixgate_records_written_total"), "written"), (happened(rate("prefixgate_records_dropped_total", by="reason"), "reason", "prefixgate_records_dropped_total"), "lost {{reason}}")], "cps"),
        lines("Remote stores", "1 when the store took the last delivery, 0 when not; for the books of the caps: 1 when they can be reached.",
              [("prefixgate_remote_up", "{{instance}} {{store}}"), ("prefixgate_ledger_up", "{{instance}} caps")], "short", maximum=1),
        lines("Records that wait", "In the spool on disk, by store.", [("sum by (instance, store) (prefixgate_spool_records)", "{{instance}} {{store}}")]),
        lines("Spool in use", "Share of the bytes that the spool may take. At 1 records are lost.",
              [("prefixgate_spool_bytes / (prefixgate_spool_limit_bytes > 0)", "{{instance}} {{store}}")], "percentunit", maximum=1, steps=(GREEN, (0.5, YELLOW), (0.9, RED))),
        lines("Oldest record", "How long it has waited for its store. The dashed line is the limit of the alert PrefixgateSpoolGrows.",
              [("prefixgate_spool_oldest_seconds", "{{instance}} {{store}}")], "s", limit="prefixgate:limit:spool_age_seconds"),
        lines("Deliveries", "Records a second that were put into a spool and that its store has confirmed; failed deliveries, which are tried again.",
              [(rate("prefixgate_spool_appended_total", by="store"), "{{store}} appended"), (rate("prefixgate_spool_delivered_total", by="store"), "{{store}} delivered"),
               (rate("prefixgate_remote_failures_total", by="store"), "{{store}} failures")], "cps"),
        lines("Records that never arrive", "By store and reason.",
              [("sum by (store, reason) (increase(prefixgate_spool_dropped_total[$__rate_interval]))", "{{store}} {{reason}}")], bars=True, stack=True),
        lines("Spans", "Spans a second by what became of them, and posts that failed. Rejected ones are refused by a receiver that took the rest of their post; given up are those of runs that it did not take in time.",
              [(rate("prefixgate_otlp_spans_total", by="result"), "{{result}}"), (rate("prefixgate_otlp_posts_total", 'result="failed"', by="signal"), "failed posts of {{signal}}")], "cps"),
        lines("Captured content", "Turns a second whose content was written to disk, and those whose content was lost, by reason.",
              [(rate("prefixgate_captured_turns_total"), "captured"), (happened(rate("prefixgate_capture_lost_total", by="reason"), "reason", "prefixgate_capture_lost_total"), "lost {{reason}}")], "cps"),
    ])


MADE = {
    "overview": overview,
    "cost": cost,
    "prompt-cache": prompt_cache,
    "loops-and-caps": loops_and_caps,
    "gateway-health": gateway_health,
}
