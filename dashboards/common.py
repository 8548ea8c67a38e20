"""What the dashboards of all data sources are made of: panels, their places, variables, links."""

WIDTH = 24
GREEN, YELLOW, RED, BLUE = "green", "yellow", "red", "blue"
RATIO_STEPS = (RED, (0.5, YELLOW), (0.8, GREEN))
LOST_STEPS = (GREEN, (0.01, YELLOW), (5, RED))


def uid(board):
    return f"prefixgate-{board}"


# --- Links ------------------------------------------------------------------------------------


def dash(title, board, query="", same_source=True):
    """A link to another dashboard with the same range. The data source goes along where the other
    has one of the same kind."""
    source = "&${datasource:queryparam}" if same_source else ""
    return {"title": title, "url": f"/d/{uid(board)}?${{__url_time_range}}{source}{query}", "targetBlank": False}


def board_link(title, tooltip, board, query=None):
    """A link in the head of a dashboard. With a query it takes that along, and else all variables."""
    return {
        "title": title,
        "type": "link",
        "url": f"/d/{uid(board)}" + (f"?{query}" if query else ""),
        "icon": "dashboard",
        "tooltip": tooltip,
        "tags": [],
        "asDropdown": False,
        "includeVars": query is None,
        "keepTime": True,
        "targetBlank": False,
    }


# --- Panels -----------------------------------------------------------------------------------


def thresholds(*steps):
    """First a colour, then pairs of a value and the colour from there on."""
    first, *rest = steps
    return {
        "mode": "absolute",
        "steps": [{"color": first, "value": None}] + [{"color": color, "value": value} for value, color in rest],
    }


def panel(kind, title, description, width, height, targets, options, defaults, overrides=(), links=()):
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": targets[0]["datasource"],
        "gridPos": {"w": width, "h": height},
        "targets": targets,
        "options": options,
        "fieldConfig": {"defaults": defaults, "overrides": list(overrides)},
        "links": [
            {
                **link, "type": "link", "icon": "", "tooltip": "", "tags": [],
                "asDropdown": False, "includeVars": False, "keepTime": False,
            }
            for link in links
        ],
        "transparent": False,
    }


def stat(title, description, targets, unit="short", steps=(BLUE,), width=4, decimals=None, links=()):
    """One number, as of now."""
    options = {
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "percentChangeColorMode": "standard",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "showPercentChange": False,
        "textMode": "auto",
        "wideLayout": True,
    }
    defaults = {"unit": unit, "color": {"mode": "thresholds"}, "thresholds": thresholds(*steps), "mappings": [], "noValue": "-"}
    if decimals is not None:
        defaults["decimals"] = decimals
    return panel("stat", title, description, width, 4, targets, options, defaults, links=links)


def limit_style(name):
    """How a series of limits is drawn: a dashed red line."""
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [
            {"id": "color", "value": {"mode": "fixed", "fixedColor": RED}},
            {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 8]}},
            {"id": "custom.fillOpacity", "value": 0},
            {"id": "custom.stacking", "value": {"group": "limit", "mode": "none"}},
        ],
    }


def lines(title, description, targets, unit="short", width=12, height=8, stack=False, bars=False, steps=None,
          maximum=None, minimum=0, percent=False, links=(), data_links=(), overrides=(), name=None):
    """Over time. `name` says what a series is called, where the query does not."""
    custom = {
        "axisBorderShow": False,
        "axisCenteredZero": False,
        "axisColorMode": "text",
        "axisLabel": "",
        "axisPlacement": "auto",
        "barAlignment": 0,
        "drawStyle": "bars" if bars else "line",
        "fillOpacity": 60 if bars else (25 if stack else 8),
        "gradientMode": "none",
        "hideFrom": {"legend": False, "tooltip": False, "viz": False},
        "insertNulls": False,
        "lineInterpolation": "linear",
        "lineWidth": 1 if bars else 2,
        "pointSize": 4,
        "scaleDistribution": {"type": "linear"},
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"group": "A", "mode": ("percent" if percent else "normal") if stack else "none"},
        "thresholdsStyle": {"mode": "dashed" if steps else "off"},
    }
    defaults = {
        "unit": unit,
        "color": {"mode": "palette-classic"},
        "custom": custom,
        "mappings": [],
        "thresholds": thresholds(*(steps or (GREEN,))),
    }
    if name is not None:
        defaults["displayName"] = name
    if minimum is not None:
        defaults["min"] = minimum
    if maximum is not None:
        defaults["max"] = maximum
    if data_links:
        defaults["links"] = list(data_links)
    options = {
        "legend": {"calcs": ["lastNotNull", "max"], "displayMode": "table", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc", "hideZeros": True},
    }
    return panel("timeseries", title, description, width, height, targets, options, defaults, overrides, links)


def table(title, description, targets, width=12, height=8, sort_by=None, overrides=(), data_links=()):
    options = {
        "cellHeight": "sm",
        "frameIndex": 0,
        "showHeader": True,
        "sortBy": [{"desc": True, "displayName": sort_by}] if sort_by else [],
    }
    defaults = {
        "unit": "string",
        "color": {"mode": "thresholds"},
        "custom": {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False, "filterable": True},
        "mappings": [],
        "thresholds": thresholds(GREEN),
    }
    if data_links:
        defaults["links"] = list(data_links)
    return panel("table", title, description, width, height, targets, options, defaults, overrides)


GAUGE = {"id": "custom.cellOptions", "value": {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}}


def column(name, unit=None, links=(), steps=None, width=None, decimals=None, gauge=False, hidden=False):
    """How a column of a table is shown."""
    properties = []
    if unit is not None:
        properties.append({"id": "unit", "value": unit})
    if decimals is not None:
        properties.append({"id": "decimals", "value": decimals})
    if gauge:
        properties.append(GAUGE)
    if steps is not None:
        properties += [
            {"id": "thresholds", "value": thresholds(*steps)},
            {"id": "custom.cellOptions", "value": {"type": "color-text"}},
        ]
    if width is not None:
        properties.append({"id": "custom.width", "value": width})
    if hidden:
        properties.append({"id": "custom.hideFrom", "value": {"legend": True, "tooltip": True, "viz": True}})
    if links:
        properties.append({"id": "links", "value": list(links)})
    return {"matcher": {"id": "byName", "options": name}, "properties": properties}


def row(title):
    return {"type": "row", "title": title, "collapsed": False, "gridPos": {"w": WIDTH, "h": 1}, "panels": []}


def placed(panels):
    """Puts panels side by side, and numbers them."""
    x = y = tallest = 0
    for number, one in enumerate(panels, 1):
        at = one["gridPos"]
        if x + at["w"] > WIDTH:
            x, y, tallest = 0, y + tallest, 0
        one["gridPos"] = {"x": x, "y": y, "w": at["w"], "h": at["h"]}
        one["id"] = number
        x, tallest = x + at["w"], max(tallest, at["h"])
    return panels


# --- Dashboards -------------------------------------------------------------------------------


def source(kind, text, uid_of_ours):
    """The variable for the data source: the one of config/grafana/provisioning; where that is unknown
    Grafana takes its default."""
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": kind,
        "refresh": 1,
        "regex": "",
        "multi": False,
        "includeAll": False,
        "current": {"selected": False, "text": text, "value": uid_of_ours},
        "hide": 0,
        "options": [],
        "skipUrlSync": False,
    }


def board(name, title, description, tags, links, annotations, variables, panels, since="now-6h", refresh="30s"):
    return {
        "uid": uid(name),
        "title": f"prefixgate / {title}",
        "description": description,
        "tags": ["prefixgate", *tags],
        "schemaVersion": 42,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "fiscalYearStartMonth": 0,
        "preload": False,
        "refresh": refresh,
        "time": {"from": since, "to": "now"},
        "timepicker": {},
        "timezone": "browser",
        "weekStart": "",
        "annotations": {"list": annotations},
        "templating": {"list": variables},
        "links": links,
        "panels": placed(panels),
    }
