"""The tables, and whether the budgets are kept."""

# Budgets, against nginx in the same run.
MEDIAN_RATIO = 3.0
CPU_RATIO = 4.0
LARGE_CPU_US = 1_500
RSS_BYTES = 60 * 1000 * 1000
# CPU for each further byte between 100 kB and 1 MB, against that between 10 kB and 100 kB.
GROWTH_RATIO = 2.0


def _time(us):
    return f"{us / 1000:.2f} ms" if abs(us) >= 1000 else f"{us:.0f} us"


def _count(number):
    return f"{number / 1000:.1f}k" if number >= 1000 else f"{number:.0f}"


def _table(header, lines):
    rule = ["---"] * len(header)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, rule, *lines]) + "\n"


def loads(results):
    """A line for each row: what each proxy adds to the direct run, its throughput and CPU."""
    names = [name for name in next(iter(results.values())) if name != "direct"]
    header = ["format", "body", "answer", "conns", "direct p50 / p99, req/s"]
    header += [f"{name}: added p50 / p99, req/s, CPU" for name in names]
    others = [name for name in names if name != "nginx"]
    header += [f"{name} to nginx: added p50, CPU" for name in others]
    lines = []
    for (form, size, streamed, connections), figures in results.items():
        direct = figures["direct"]
        cells = [form, size, "stream" if streamed else "whole", str(connections)]
        cells.append(f"{_time(direct['p50'])} / {_time(direct['p99'])}, {_count(direct['rps'])}")
        for name in names:
            if name not in figures:
                cells.append("fails")
                continue
            f = figures[name]
            bad = f", **{f['bad']} failed**" if f["bad"] else ""
            cells.append(
                f"{_time(f['added_p50'])} / {_time(f['added_p99'])}, {_count(f['rps'])}, {_time(f['cpu'])}{bad}"
            )
        for name in others:
            cells.append(
                f"{_ratio(figures, name, 'added_p50')}, {_ratio(figures, name, 'cpu')}"
            )
        lines.append(cells)
    return _table(header, lines)


def _ratio(figures, name, key):
    if name not in figures:
        return "-"
    base = figures["nginx"][key]
    return f"{figures[name][key] / base:.1f}x" if base > 0 else "-"


def budgets(results, held, streams):
    """One line a budget with its verdict, and whether all are kept."""
    lines, kept = [], True

    def line(what, measured, budget, ok):
        nonlocal kept
        kept = kept and ok
        lines.append([what, measured, budget, "kept" if ok else "**missed**"])

    if any("prefixgate" in figures for figures in results.values()):
        for (form, size, streamed, connections), figures in results.items():
            nginx, ours = figures["nginx"], figures["prefixgate"]
            row = f"{form} {size} {'streamed' if streamed else 'whole'} x{connections}"
            if ours["bad"]:
                line(f"{row}: failed requests", str(ours["bad"]), "none", False)
            if size == "10 kB" and connections == 1:
                added = f"{_time(ours['added_p50'])} (nginx {_time(nginx['added_p50'])})"
                ratio = ours["added_p50"] / max(nginx["added_p50"], 1)
                line(f"{row}: median added", f"{added}, {ratio:.1f}x", f"{MEDIAN_RATIO:.0f}x", ratio <= MEDIAN_RATIO)
            if size == "10 kB" and connections == 32:
                cpu = f"{_time(ours['cpu'])} (nginx {_time(nginx['cpu'])})"
                ratio = ours["cpu"] / max(nginx["cpu"], 0.1)
                line(f"{row}: CPU a request", f"{cpu}, {ratio:.1f}x", f"{CPU_RATIO:.0f}x", ratio <= CPU_RATIO)
            if size == "1 MB" and connections == 32:
                more = ours["cpu"] - nginx["cpu"]
                line(f"{row}: CPU more than nginx", _time(more), _time(LARGE_CPU_US), more <= LARGE_CPU_US)
        growth = _growth(results)
        if growth is not None:
            line("CPU a byte, 100 kB to 1 MB against 10 kB to 100 kB", f"{growth:.2f}x", f"{GROWTH_RATIO:.0f}x", growth <= GROWTH_RATIO)
    for name, (idle, open_) in held.items():
        measured = f"{open_ / 1e6:.1f} MB (idle {idle / 1e6:.1f} MB)"
        what = f"{name}: memory with {streams:,} open streams"
        if name == "prefixgate":
            line(what, measured, f"{RSS_BYTES / 1e6:.0f} MB", open_ < RSS_BYTES)
        else:
            lines.append([what, measured, "-", "-"])
    return _table(["budget", "measured", "at most", "verdict"], lines), kept


def _growth(results):
    cpu = {}
    for (form, size, streamed, connections), figures in results.items():
        if form == "Messages" and not streamed and connections == 32:
            cpu[size] = figures["prefixgate"]["cpu"]
    if not {"10 kB", "100 kB", "1 MB"} <= cpu.keys():
        return None
    small = max((cpu["100 kB"] - cpu["10 kB"]) / 90_000, 1e-9)
    large = (cpu["1 MB"] - cpu["100 kB"]) / 900_000
    return large / small
