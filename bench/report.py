"""Tables of a run, for the terminal, for bench/README.md and as JSON."""

import json
import os
import platform
import re
from statistics import median

from measure import SCENARIOS

BEGIN, END = "<!-- figures: begin (written by bench/run.py) -->", "<!-- figures: end -->"


def machine():
    with open("/proc/cpuinfo") as info:
        model = re.search(r"^model name\s*:\s*(.*)$", info.read(), re.M)
    return {"cpu": model[1] if model else platform.machine(), "cores": os.cpu_count(),
            "kernel": platform.release()}


def spread(values, digits):
    middle = f"{median(values):.{digits}f}"
    return f"{middle} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def ratios(rows, against, key):
    """Round by round: only what was measured side by side is compared."""
    return [row[key] / other[key] for row, other in zip(rows, against) if row and other]


def table(results):
    """Rows of the main table, from {scenario: {peer: [round or None]}}."""
    yield ["scenario", "gateway", "CPU us/request", "x nginx", "user part", "requests/s",
           "x nginx", "p99 us", "core busy"]
    for scenario, peers in results.items():
        reference = peers.get("nginx")
        for name, rows in peers.items():
            good = [row for row in rows if row]
            if not good:
                continue
            cells = [scenario, name, spread([r["cpu_us"] for r in good], 1)]
            ratio = ratios(rows, reference, "cpu_us") if reference else []
            cells.append(spread(ratio, 2) if ratio else "-")
            cells.append(f"{median(r['user_share'] for r in good):.0%}")
            cells.append(f"{median(r['requests_per_s'] for r in good):,.0f}")
            ratio = ratios(rows, reference, "requests_per_s") if reference else []
            cells.append(spread(ratio, 2) if ratio else "-")
            late = [r["p99_us"] for r in good if r["p99_us"]]
            cells.append(f"{median(late):,.0f}" if late else "-")
            cells.append(f"{median(r['core_share'] for r in good):.0%}")
            yield cells


def disturbed(results):
    """A sentence when other programs had the gateways' core too."""
    rows = [row for peers in results.values() for all_of in peers.values() for row in all_of if row]
    waited = median(row["waited_share"] for row in rows) if rows else 0
    if waited < 0.05:
        return ""
    return (f"**Disturbed run**: of the time a gateway was ready to run it waited {waited:.0%} for "
            "its core, which other programs had. CPU times are too high, and throughput says "
            "nothing.\n")


def own_ratios(results):
    """What a stage costs on top of the same gateway without it."""
    yield ["gateway", "with", "without", "requests/s", "CPU time", "CPU us on top"]
    for with_it, without in (("queue", "plain"),):
        for name, rows in results.get(with_it, {}).items():
            base = results.get(without, {}).get(name, [])
            speed, cost = ratios(rows, base, "requests_per_s"), ratios(rows, base, "cpu_us")
            if speed:
                extra = [a["cpu_us"] - b["cpu_us"] for a, b in zip(rows, base) if a and b]
                yield [name, with_it, without, spread(speed, 2), spread(cost, 2), spread(extra, 1)]


def memory_table(memory):
    yield ["gateway", "idle RSS MiB", "idle PSS MiB", "RSS after load MiB", "PSS after load MiB"]
    for name, (idle, loaded) in memory.items():
        yield [name, *(f"{kib / 1024:.1f}" for kib in (*idle, *loaded))]


def engine_table(title, lines):
    yield [title, "figure"]
    for line in lines:
        value = line["value"]
        shown = f"{value:,.0f}" if value >= 1000 else f"{value:,.2f}"
        yield [line["name"], f"{shown} {line['unit']}"]


def markdown(rows):
    rows = list(rows)
    if len(rows) < 2:
        return ""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(lines) + "\n"


def plain(rows):
    rows = list(rows)
    if len(rows) < 2:
        return ""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths)) for row in rows) + "\n"


def render(run, form):
    """The whole report; `form` is `markdown` or `plain`."""
    host = run["machine"]
    said = (f"{host['cpu']}, {host['cores']} cores, Linux {host['kernel']}; "
            f"{run['date']}; {run['rounds']} rounds of {run['seconds']} s, "
            f"{run['connections']} connections.\n")
    used = {s: SCENARIOS[s][3] for s in run["results"]}
    legend = "".join(f"- {name}: {text}\n" for name, text in used.items())
    parts = [said, disturbed(run["results"]), legend, form(table(run["results"])), form(own_ratios(run["results"])),
             form(memory_table(run["memory"])), form(engine_table("queues in the process", run["engine"])),
             form(engine_table("queues on a Valkey", run["store"])),
             "".join(f"- {note}\n" for note in run["notes"])]
    return "\n".join(part for part in parts if part)


def save(run, folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "latest.json").write_text(json.dumps(run, indent=1) + "\n")
    (folder / "latest.md").write_text(render(run, markdown))


def write_readme(run, path):
    text = path.read_text()
    if BEGIN not in text or END not in text:
        raise SystemExit(f"{path} has no markers for the figures")
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    path.write_text(f"{head}{BEGIN}\n\n{render(run, markdown)}\n{END}{tail}")
