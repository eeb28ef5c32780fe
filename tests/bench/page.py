"""page.py: the figures of a run as lines, as a table in Markdown, and as one self-contained page with plots."""
import html as escape

COLOURS = {"nginx": "#7a7a7a", "one": "#1f6fb4", "three": "#2a9d5c", "six": "#c2571a"}
MIB = 1 << 20


def size_words(size):
    for unit, name in ((1 << 30, "GiB"), (MIB, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def number(value):
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def rate_words(bytes_s):
    return f"{bytes_s / 1e9:.2f} GB/s" if bytes_s >= 1e9 else f"{bytes_s / 1e6:.3g} MB/s"


def line(cell):
    ratio = cell["ratio"]
    return (f"{cell['method']} {size_words(cell['size']):>7} x{cell['connections']:<3} {cell['subject']:<14} "
            f"{number(cell['requests_s']['median']):>8}/s {rate_words(cell['bytes_s']['median']):>10} "
            f"p50 {number(cell['p50_ms']['median'])} p99 {number(cell['p99_ms']['median'])} ms, "
            f"{number((cell['cpu_s_per_gb'] or {}).get('median'))} CPU-s/GB, "
            f"ratio {number(ratio['median']) if ratio else '-'}, {cell['memory_own'] / 1e6:.0f} MB"
            + (f", {cell['errors']} ERRORS ({cell['error']})" if cell["errors"] else ""))


def machine_words(result):
    m = result["machine"]
    return (f"{m['cores']} cores ({m['cpu']}), {m['memory_gib']} GiB of memory, {m['file_system']}, Debian {m['debian']}, "
            f"Linux {m['kernel']}; {result['rounds']} interleaved rounds of {result['step_seconds']} s, {result['begun']}")


HEADS = ["", "connections", "subject", "requests/s", "throughput", "min to max", "p50 ms", "p99 ms", "CPU-s/GB",
         "ratio", "min to max", "peak MB (with index map)"]


def row(cell):
    unit = 1e6
    ratio = cell["ratio"]
    return [f"{cell['method']} {size_words(cell['size'])}", str(cell["connections"]), cell["subject"],
            number(cell["requests_s"]["median"]), rate_words(cell["bytes_s"]["median"]),
            f"{rate_words(cell['bytes_s']['min'])} to {rate_words(cell['bytes_s']['max'])}",
            number(cell["p50_ms"]["median"]), number(cell["p99_ms"]["median"]),
            number((cell["cpu_s_per_gb"] or {}).get("median")),
            number(ratio["median"]) if ratio else "-",
            f"{number(ratio['min'])} to {number(ratio['max'])}" if ratio else "-",
            f"{cell['memory_own'] / unit:.0f} ({cell['memory_rss'] / unit:.0f})"]


def table(heads, rows):
    return "\n".join(["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
                     + ["| " + " | ".join(r) + " |" for r in rows])


def extra_tables(result):
    """(title, heads, rows) of what is no cell."""
    found = []
    if result["idle"]:
        found.append(("Idle, the largest process", ["subject", "processes", "own MB", "RSS MB", "CPU of one core"],
                      [[n, str(v["processes"]), f"{v['memory_own'] / 1e6:.1f}", f"{v['memory_rss'] / 1e6:.1f}",
                        f"{v['cpu'] * 100:.1f} %"] for n, v in result["idle"].items()]))
    if result["slow_clients"]:
        found.append(("64 streams each way through one host, the largest process",
                      ["subject", "objects", "clients", "seconds", "own MB", "RSS MB", "errors"],
                      [[e["subject"], size_words(e["size"]), f"{e['rate'] >> 10} KiB/s each" if e["rate"] else "full speed", str(e["seconds"]),
                        f"{e['memory_own'] / 1e6:.0f}", f"{e['memory_rss'] / 1e6:.0f}", str(e["errors"])]
                       for e in result["slow_clients"]]))
    if result["slow_hosts"]:
        rows = [[f"{e['method']} {size_words(e['size'])}", e["subject"]]
                + [f"{number(e[s]['p99_ms'])}" + (f" ({number(e[s]['p99_ratio']['median'])}x)" if s != "whole" else "")
                   + (f" {e[s]['errors']} errors" if e[s]["errors"] else "") for s in ("whole", "stopped", "slowed")]
                for e in result["slow_hosts"]]
        found.append(("p99 in ms of the others, 16 connections: all hosts whole, one stopped, one at a tenth of its speed",
                      ["", "subject", "whole", "one stopped", "one slowed"], rows))
    return found


def groups(result):
    """The cells by state, in the order they were measured."""
    order = []
    for cell in result["cells"]:
        key = (cell["state"], cell["base"])
        if key not in order:
            order.append(key)
    for state, base in order:
        title = "All drives there; ratio to nginx" if state == "healthy" else f"{state}; ratio to {base}"
        yield title, [c for c in result["cells"] if (c["state"], c["base"]) == (state, base)]


def short(cell):
    """One cell of the compact table: the rate in its natural unit, the ratio, the CPU."""
    if cell is None:
        return "-"
    if cell["size"] < MIB // 2:
        rate = f"{number(cell['requests_s']['median'])}/s"
    else:
        rate = rate_words(cell["bytes_s"]["median"])
    ratio = "" if cell["subject"] == cell["base"] or not cell["ratio"] else f" ({number(cell['ratio']['median'])})"
    return rate + ratio


def compact(cells):
    """One row for each load, one column for each subject."""
    names, loads = [], []
    for c in cells:
        if c["subject"] not in names:
            names.append(c["subject"])
        if (c["method"], c["size"], c["connections"]) not in loads:
            loads.append((c["method"], c["size"], c["connections"]))
    at = {(c["method"], c["size"], c["connections"], c["subject"]): c for c in cells}
    rows = []
    for load in sorted(loads, key=lambda x: (x[0], x[1], x[2])):
        cpu = [at.get((*load, n)) for n in names]
        rows.append([f"{load[0]} {size_words(load[1])} x{load[2]}"] + [short(c) for c in cpu]
                    + [" / ".join(number((c or {}).get("cpu_s_per_gb", {}).get("median")) for c in cpu)])
    return table(["load"] + names + ["CPU-s/GB of each"], rows)


def markdown(result):
    parts = [f"Machine: {machine_words(result)}.", ""]
    for name, s in result["subjects"].items():
        parts.append(f"- `{name}`: {s['words']}")
    for title, cells in groups(result):
        parts += ["", f"**{title}**", "", compact(cells)]
    parts += ["", "## Every figure"]
    for title, cells in groups(result):
        parts += ["", f"**{title}**", "", table(HEADS, [row(c) for c in cells])]
    for title, heads, rows in extra_tables(result):
        parts += ["", f"**{title}**", "", table(heads, rows)]
    return "\n".join(parts) + "\n"


# ---- the page ----

STYLE = """body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:76em;padding:0 1em;color:#222}
table{border-collapse:collapse;margin:.6em 0 2em;font-size:13px}td,th{border:1px solid #ccc;padding:.25em .6em;text-align:right}
td:first-child,th:first-child,td:nth-child(3){text-align:left}h2{margin-top:2em}svg{margin:.5em 1em .5em 0}
figure{display:inline-block;margin:0}"""


def colour(subject):
    base = subject.partition("-")[0]
    return COLOURS.get(base, "#555")


def bars(title, cells, figure, words, scale=1.0):
    """Grouped bars: one group for each (size, connections), a whisker from least to most."""
    sets = []
    for c in cells:
        key = (c["size"], c["connections"])
        if key not in [k for k, _ in sets]:
            sets.append((key, []))
        dict(sets)[key].append(c)
    highest = max([c[figure]["max"] for c in cells if c[figure]] or [1]) / scale or 1
    width_bar, gap, height, left, top = 14, 16, 190, 60, 26
    x, shapes = left, []
    for step in range(5):
        y = top + height - height * step / 4
        shapes.append(f'<line x1="{left}" x2="99%" y1="{y}" y2="{y}" stroke="#e4e4e4"/>'
                      f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{number(highest * step / 4)}</text>')
    for (size, connections), group in sets:
        begin = x
        for c in group:
            if not c[figure]:
                continue
            value, low, high = (c[figure][k] / scale for k in ("median", "min", "max"))
            h = height * value / highest
            middle = x + width_bar / 2
            shapes.append(f'<rect x="{x}" y="{top + height - h:.1f}" width="{width_bar}" height="{h:.1f}" '
                          f'fill="{colour(c["subject"])}" fill-opacity="{0.55 if "gone" in c["subject"] else 1}">'
                          f'<title>{escape.escape(c["subject"])}: {number(value)} ({number(low)} to {number(high)})</title></rect>'
                          f'<line x1="{middle}" x2="{middle}" y1="{top + height - height * low / highest:.1f}" '
                          f'y2="{top + height - height * high / highest:.1f}" stroke="#000"/>')
            x += width_bar + 2
        shapes.append(f'<text x="{(begin + x) / 2}" y="{top + height + 16}" text-anchor="middle">{size_words(size)}</text>'
                      f'<text x="{(begin + x) / 2}" y="{top + height + 30}" text-anchor="middle">x{connections}</text>')
        x += gap
    return (f'<figure><svg xmlns="http://www.w3.org/2000/svg" width="{x + 10}" height="{top + height + 40}" font-size="11" '
            f'font-family="sans-serif"><text x="{left}" y="14" font-size="13">{escape.escape(title)}, {words}</text>'
            + "".join(shapes) + "</svg></figure>")


def html_table(heads, rows):
    cells = "".join(f"<th>{escape.escape(h)}</th>" for h in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape.escape(v)}</td>" for v in r) + "</tr>" for r in rows)
    return f"<table><tr>{cells}</tr>{body}</table>"


def html(result):
    parts = [f"<!doctype html><html lang=en><meta charset=utf-8><title>kofn bench</title><style>{STYLE}</style>",
             "<h1>kofn beside nginx</h1>", f"<p>{escape.escape(machine_words(result))}.</p><ul>"]
    for name, s in result["subjects"].items():
        parts.append(f'<li><b style="color:{colour(name)}">{escape.escape(name)}</b>: {escape.escape(s["words"])}</li>')
    parts.append("</ul><p>Bars are medians, whiskers the least and the most of all rounds. nginx syncs nothing; kofn answers a "
                 "PUT when it is durable on a write quorum of drives.</p>")
    for title, cells in groups(result):
        parts.append(f"<h2>{escape.escape(title)}</h2>")
        for method in ("GET", "PUT"):
            those = [c for c in cells if c["method"] == method]
            small = [c for c in those if c["size"] < MIB // 2]
            large = [c for c in those if c["size"] >= MIB // 2]
            for some, figure, words, scale in ((small, "requests_s", "requests/s", 1), (large, "bytes_s", "MB/s", 1e6),
                                               (those, "ratio", "ratio by pairs", 1), (large, "cpu_s_per_gb", "CPU-s/GB", 1),
                                               (small, "p99_ms", "p99 in ms", 1), (large, "p99_ms", "p99 in ms", 1)):
                if some:
                    parts.append(bars(method, some, figure, words, scale))
        parts.append(html_table(HEADS, [row(c) for c in cells]))
    for title, heads, rows in extra_tables(result):
        parts.append(f"<h2>{escape.escape(title)}</h2>" + html_table(heads, rows))
    return "\n".join(parts) + "</html>\n"
