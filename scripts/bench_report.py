"""The report of bench-goals: medians over launches for each placement of the cores, tables, and met goals.

A launch is {"part", "foreign", "seconds", "rows"}, and a row is {"bytes", "place", "cores", "time_us",
"mpi_time_us", "ratio"}. "place" is "out" or "in"; "mpi_time_us" is the other library's time; "cores" is
"near", "far", another answer of the probe, or "any" where it does not matter.
"""
import statistics

PLACES = {"out": "out of place", "in": "in place"}
PLACEMENTS = ["near", "far"]
TOLERANCE = 0.95  # of "no size below", for moving virtual cores and other processes on them


def quartiles(values):
    """Return the lower quartile, median and upper quartile, interpolated."""
    return statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else list(values) * 3


def collect(launches, floor):
    """Map placement -> place -> size -> {"time", "other", "ratio", "floor"} -> values of all launches.

    `floor` maps sizes to the floor's time.
    """
    out = {}
    for row in [row for one in launches for row in one["rows"] if row["time_us"] is not None]:
        values = out.setdefault(row["cores"], {}).setdefault(row["place"], {}).setdefault(row["bytes"], {})
        share = floor[row["bytes"]] / row["time_us"] if row["bytes"] in floor else None
        for key, value in (("time", row["time_us"]), ("other", row.get("mpi_time_us")),
                           ("ratio", row.get("ratio")), ("floor", share)):
            if value is not None:
                values.setdefault(key, []).append(value)
    return out


def floor_times(launches):
    of_sizes = collect(launches, {}).get("any", {}).get("out", {})
    return {size: statistics.median(values["time"]) for size, values in of_sizes.items()}


def fewest(places, sizes):
    """Return the smallest number of launches that a size has."""
    return min((len(of.get(size, {}).get("time", [])) for of in places.values() for size in sizes), default=0)


def complete(launches, sizes):
    """Count the launches that every size has, in the placement that has most."""
    collected = collect(launches, {})
    present = [cores for cores in PLACEMENTS + ["any"] if cores in collected]
    return max((fewest(collected[cores], sizes) for cores in present), default=0)


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
    """Return the lines of a Markdown table with aligned columns."""
    widths = [max(len(str(row[i])) for row in [head] + rows) for i in range(len(head))]
    padded = [[str(word).ljust(width) for word, width in zip(row, widths)] for row in [head] + rows]
    lines = ["| " + " | ".join(row) + " |" for row in padded]
    return lines[:1] + ["|" + "|".join("-" * (width + 2) for width in widths) + "|"] + lines[1:]


def value_text(key, values):
    if key in ("ratio", "floor"):
        return cell(values.get(key))
    return time_text(statistics.median(values[key])) if key in values else "n/a"


def size_table(places, other):
    present = [place for place in PLACES if place in places]
    measured = set().union(*(values for sizes in places.values() for values in sizes.values()))
    keys = [("ratio", "ratio"), ("time", "Rondo, us"), ("other", f"{other}, us"), ("floor", "floor / Rondo")]
    keys = [each for each in keys if each[0] in measured]
    rows = []
    for size in sorted(set().union(*places.values())):
        row = [bytes_text(size)]
        for place in present:
            row += [value_text(key, places[place].get(size, {})) for key, _ in keys]
        rows.append(row)
    return table(["bytes"] + [f"{PLACES[place]}: {what}" for place in present for _, what in keys], rows)


# ---- goals ----

def wanted_text(goal, least, last):
    if last == 0:
        return f"at least {least:g}"
    span = f" from {bytes_text(goal.least)}"
    if goal.least == 0:
        span = "" if goal.most >= last else f" up to {bytes_text(goal.most)}"
    return {"mean": f"geometric mean at least {least:g}",
            "every": f"no size{span} below {least:g}",
            "faster": "faster at every size",
            "at": f"{bytes_text(goal.least)} at least {least:g}",
            "floor": f"{bytes_text(goal.least)} at least {least:g} of the floor"}[goal.what]


def judge(goal, of, sizes, cores):
    """Return (wanted, found, verdict) of one placement and place: "met", "missed" or why it is neither."""
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
    at = f" at {bytes_text(lowest)}" if len(asked) > 1 else ""
    return text, f"{medians[lowest]:.2f}{at}", "met" if met else "missed"


def part_report(part, collected, goals):
    """Return the lines of a part, and its rows of the table of goals."""
    lines, verdicts = [], []
    # Without a launch in either placement, report the other launches, without verdicts.
    for cores in [each for each in PLACEMENTS if each in collected] or sorted(collected):
        places = collected[cores]
        n = fewest(places, set().union(*places.values()))
        program = f"{part.program} {' '.join(part.options)}".strip()
        lines += [f"## {part.name}, cores {cores}", "",
                  f"{program}, {part.ranks} ranks; {n} launches or more of each size", ""]
        lines += size_table(places, part.other) + [""]
        if cores not in PLACEMENTS:
            continue
        for goal in [each for each in goals if each.part == part.name]:
            if not any(goal.least <= size <= goal.most for size in part.sizes()):
                continue
            for place in [each for each in PLACES if each in places]:
                verdict = judge(goal, places[place], part.sizes(), cores)
                verdicts.append([goal.number, part.name, cores, PLACES[place], *verdict, n])
    return lines, verdicts


def summary_of_size(size, values):
    return {"bytes": size, "launches": len(values["time"])} | {
        key: dict(zip(("q1", "median", "q3"), quartiles(each))) for key, each in values.items()}


def summary_of(collected):
    """Return `collected` with medians and quartiles instead of values, for programs."""
    return {cores: {place: [summary_of_size(size, values) for size, values in sorted(sizes.items())]
                    for place, sizes in places.items()} for cores, places in collected.items()}


def report(parts, goals, launches, floor):
    """Return the text and the summary of all parts that were launched, or ("", {}).

    `launches` maps names of parts to the launches that count.
    """
    lines, verdicts, summary = [], [], {}
    for part in [each for each in parts if launches[each.name] and each.other != "floor"]:
        collected = collect(launches[part.name], floor if part.has_floor() else {})
        of_part, judged = part_report(part, collected, goals)
        lines, verdicts, summary[part.name] = lines + of_part, verdicts + judged, summary_of(collected)
    if not summary:
        return "", {}
    foreign = [one["foreign"] for name in summary for one in launches[name]]
    first = ["Median of launches' ratios [quartiles]; above 1 Rondo is faster; "
             f"\"no size below\" allows {100 - 100 * TOLERANCE:g} %.",
             f"Other processes had {100 * statistics.median(foreign):.1f} % of the cores "
             f"(median of {len(foreign)} launches; most {100 * max(foreign):.1f} %).", ""]
    names = ("goal", "part", "cores", "place", "wanted", "found", "verdict", "launches")
    head = ["goal", "part", "cores", "", "wanted", "found", "", "launches"]
    goals_table = table(head, sorted(verdicts, key=lambda row: row[0])) if verdicts else []
    rows = [dict(zip(names, row)) for row in verdicts]
    return "\n".join(first + lines + goals_table) + "\n", {"parts": summary, "floor": floor, "goals": rows}
