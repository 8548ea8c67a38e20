#!/usr/bin/env python3
"""Writes the dashboards.

    dashboards/build.py          writes dashboards/prometheus/*.json and dashboards/clickhouse/*.json
    dashboards/build.py DIR      ... to DIR instead

The JSON files are what Grafana reads and what is reviewed; they are kept in the repository, and a
test holds them against what this script writes. Change them here, not there.
"""

import json
import sys
from pathlib import Path

# Directories beside this file are sets of dashboards.
sys.dont_write_bytecode = True

import clickhouse_boards
import prometheus_boards

SETS = {"prometheus": prometheus_boards.MADE, "clickhouse": clickhouse_boards.MADE}


def main():
    to = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for directory, boards in SETS.items():
        (to / directory).mkdir(parents=True, exist_ok=True)
        for name, made in boards.items():
            text = json.dumps(made(), indent=2, ensure_ascii=False)
            (to / directory / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
