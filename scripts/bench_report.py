"""What bench-goals makes of launches: medians over them apart for each placement of the cores, tables, and which goals these meet.

A launch: {"part", "foreign", "seconds", "rows": [{"bytes", "place": "out" or "in", "cores", "time_us", "mpi_time_us", "ratio"}]}, of which
"mpi_time_us" is the other library's and "cores" is "near", "far", what else the probe said, or "any" where it does not matter.
"""
import statistics

PLACES = {"out": "out of place", "in": "in place"}
PLACEMENTS = ["near", "far"]
TOLERANCE = 0.95  # of "no size below": what two placements of virtual cores, and others on them, may take


def quartiles(values):
    """Lower quartile, median, upper quartile, interpolated."""
    return statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else list(values) * 3


def collect(launches, floor):
    """placement -> place -> size -> {"time", "other", "ratio", "floor"} -> values over launches. `floor`: size -> its time."""
    out = {}
    for row in [row for one in launches for row in one["rows"] if row["time_us"] is not None]:
        values = out.setdefault(row["cores"], {}).setdefault(row["place"], {}).setdefault(row["bytes"], {})
        share = floor[row["bytes"]] / row["time_us"] if row["bytes"] in floor else None
        for key, value in (("time", row["time_us"]), ("other", row.get("mpi_time_us")), ("ratio", row.get("ratio")), ("floor", share)):
            if value is not None:
                values.setdefault(key, []).append(value)
    return out


def floor_times(launches):
    return {size: statistics.median(values["time"]) for size, values in collect(launches, {}).get("any", {}).get("out", {}).items()}


def fewest(places, sizes):
    """Of the launches of each size."""
    return min((len(of.get(size, {}).get("time", [])) for of in places.values() for size in sizes), default=0)


def complete(launches, sizes):
    """How many launches a part has of every size in one placement, that of which it has most."""
    collected = collect(launches, {})
    return max((fewest(collected[cores], sizes) for cores in PLACEMENTS + ["any"] if cores in collected), default=0)


# ---- text ----

def bytes_text(size):
    for unit in ["B", "KiB", "MiB"]:
        if size < 1024 or unit == "MiB":
            return f"{size:g} {unit}"
        size /= 1024


def time_text(us):
    return f"{us:.2f}" if us < 100 else f"{us:.1f}" if us < 10000 else f"{us:.0f}"


def cell(values):
    if not values:
        return "n/a"
    low, middle, high = quartiles(values)
    return f"{middle:.2f} [{low:.2f} {high:.2f}]"


def table(head, rows):
    """Markdown, in columns."""
    widths = [max(len(str(row[i])) for row in [head] + rows) for i in range(len(head))]
    lines = ["| " + " | ".join(str(word).ljust(width) for word, width in zip(row, widths)) + " |" for row in [head] + rows]
    return lines[:1] + ["|" + "|".join("-" * (width + 2) for width in widths) + "|"] + lines[1:]


def size_table(places, other):
    present = [place for place in PLACES if place in places]
    keys = [("ratio", "ratio"), ("time", "Rondo, us"), ("other", f"{other}, us"), ("floor", "floor / Rondo")]
    keys = [each for each in keys if any(each[0] in values for sizes in places.values() for values in sizes.values())]
    rows = []
    for size in sorted(set().union(*places.values())):
        row = [bytes_text(size)]
        for place in present:
            values = places[place].get(size, {})
            row += [cell(values.get(key)) if key in ("ratio", "floor") else time_text(statistics.median(values[key])) if key in values else "n/a" for key, _ in keys]
        rows.append(row)
    return table(["bytes"] + [f"{PLACES[place]}: {what}" for place in present for _, what in keys], rows)


# ---- goals ----

def wanted_text(goal, least, last):
    if last == 0:
        return f"at least {least:g}"
    span = "" if goal.least == 0 and goal.most >= last else f" up to {bytes_text(goal.most)}" if goal.least == 0 else f" from {bytes_text(goal.least)}"
    return {"mean": f"geometric mean at least {least:g}", "every": f"no size{span} below {least:g}", "faster": "faster at every size",
            "at": f"{bytes_text(goal.least)} at least {least:g}", "floor": f"{bytes_text(goal.least)} at least {least:g} of the floor"}[goal.what]


def judge(goal, of, sizes, cores):
    """(wanted, found, "met", "missed" or why neither) of one placement and place."""
    key, least = "floor" if goal.what == "floor" else "ratio", goal.wanted[cores]
    asked = [size for size in sizes if goal.least <= size <= goal.most]
    medians = {size: statistics.median(of[size][key]) for size in asked if key in of.get(size, {})}
    text = wanted_text(goal, least, sizes[-1])
    if len(medians) < len(asked):
        return text, "n/a", f"{len(medians)} of {len(asked)} sizes measured"
    lowest = min(medians, key=medians.get)
    if goal.what == "mean":
        found = statistics.geometric_mean(medians.values())
        return text, f"{found:.2f}", "met" if found >= least else "missed"
    met = medians[lowest] >= least * (TOLERANCE if goal.what == "every" else 1)
    return text, f"{medians[lowest]:.2f}" + (f" at {bytes_text(lowest)}" if len(asked) > 1 else ""), "met" if met else "missed"


def part_report(part, collected, goals):
    """Lines of a part, and rows of the table of goals."""
    lines, verdicts = [], []
    # Where neither placement was met in full, what there is, without a verdict.
    for cores in [each for each in PLACEMENTS if each in collected] or sorted(collected):
        places = collected[cores]
        n = fewest(places, set().union(*places.values()))
        lines += [f"## {part.name}, cores {cores}", "", f"{part.program} {' '.join(part.options)}".strip() + f", {part.ranks} ranks; {n} launches or more of each size", ""]
        lines += size_table(places, part.other) + [""]
        for goal in [each for each in goals if each.part == part.name and cores in PLACEMENTS and any(each.least <= size <= each.most for size in part.sizes())]:
            for place in [each for each in PLACES if each in places]:
                verdicts.append([goal.number, part.name, cores, PLACES[place], *judge(goal, places[place], part.sizes(), cores), n])
    return lines, verdicts


def summary_of(collected):
    """The same with medians and quartiles, for programs."""
    return {cores: {place: [{"bytes": size, "launches": len(values["time"])} |
                            {key: dict(zip(("q1", "median", "q3"), quartiles(each))) for key, each in values.items()}
                            for size, values in sorted(sizes.items())] for place, sizes in places.items()} for cores, places in collected.items()}


def report(parts, goals, launches, floor):
    """(text, what programs read) of all parts that were launched; ("", {}) of none. `launches`: name -> those that count."""
    lines, verdicts, summary = [], [], {}
    for part in [each for each in parts if launches[each.name] and each.other != "floor"]:
        collected = collect(launches[part.name], floor if part.has_floor() else {})
        told, judged = part_report(part, collected, goals)
        lines, verdicts, summary[part.name] = lines + told, verdicts + judged, summary_of(collected)
    if not summary:
        return "", {}
    foreign = [one["foreign"] for name in summary for one in launches[name]]
    first = [f"Median of launches' ratios [quartiles]; above 1 Rondo is faster; \"no size below\" allows {100 - 100 * TOLERANCE:g} %.", f"Other processes had {100 * statistics.median(foreign):.1f} % of the cores "
             f"(median of {len(foreign)} launches; most {100 * max(foreign):.1f} %).", ""]
    names = ("goal", "part", "cores", "place", "wanted", "found", "verdict", "launches")
    goals_table = table(["goal", "part", "cores", "", "wanted", "found", "", "launches"], sorted(verdicts, key=lambda row: row[0])) if verdicts else []
    return "\n".join(first + lines + goals_table) + "\n", {"parts": summary, "floor": floor, "goals": [dict(zip(names, row)) for row in verdicts]}
