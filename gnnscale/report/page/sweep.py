"""``report.html`` of a sweep: effects of options on metric and time, and all jobs."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import escape
from itertools import zip_longest
from typing import Any
from urllib.parse import quote

from gnnscale.core import find_metric, one_line
from gnnscale.report.formatting import ABSENT, MEASURED, count, duration, percent
from gnnscale.report.page.best import Best, Jobs, find_best
from gnnscale.report.page.document import (
    badge,
    card,
    cell,
    document,
    grid,
    heading,
    heat_table,
    nothing,
    sections,
    table,
)
from gnnscale.report.page.remarks import remarks
from gnnscale.report.page.svg import DotRow, Quantity, dot_plot
from gnnscale.report.page.words import words

#: Results of a job as columns of the page: heading, and format of a value.
_SCORES: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "valid_metric": ("validation", "{:.4f}".format),
    "test_metric": ("test", "{:.4f}".format),
}
_COLUMNS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "status": ("status", str),
    "epochs": ("epochs", count),
    "best_epoch": ("best epoch", count),
    **_SCORES,
    "epoch_time_s": ("time per epoch", duration),
    "mteps": ("million edges per second", count),
    "speed_up": ("speed-up", "{:.2f}×".format),
    "edge_cut_fraction": ("edges cut", percent),
    "replication_factor": ("copies of a vertex", count),
    "step_mb": ("MB per step", count),
    "feature_hit_rate": ("feature rows in cache", percent),
    "topology_hit_rate": ("neighbor lists in cache", percent),
    "link_mb": ("MB over links per step", count),
    "cache_mb": ("MB of caches", count),
    "caching": ("devices that cache", count),
}
#: Columns of caches and partitions.
_DATA_COLUMNS = tuple(_COLUMNS)[list(_COLUMNS).index("edge_cut_fraction") :]
#: Largest number of columns of a table; more columns are divided into two tables.
_MAX_COLUMNS = 11
#: Largest number of rows of a plot or a heat map; a search can have thousands.
_MAX_ROWS = 40
#: Explanation of a plot's bars, if rows have several jobs.
_NOTES = {
    "jobs": "Mean and standard deviation over jobs that differ in their seed; each dot is a job.",
    "option": "Mean and standard deviation over all jobs with this value, whatever their other "
    "options; each dot is a job.",
}
_TIME = Quantity(form=duration, low=0.0, seconds=True)


def render(jobs: Jobs, *, columns: Sequence[str], equal: Sequence[str], sequential: bool) -> str:
    """Return the HTML page of a sweep; ``jobs`` are results of ``collect``, at least one.

    ``columns`` names the results in the table of jobs, ``equal`` the results that all jobs share.
    Times are compared if ``sequential``: no two jobs ran at a time.
    """
    completed = sum(job["status"] == "completed" for job in jobs)
    real = all(job["figures"] in (None, MEASURED) for job in jobs)
    note = (
        '<div class="note">Some jobs trained on devices that are not real hardware: their times '
        "are not those of real hardware. They have a mark below.</div>"
    )
    body = sections(
        {
            "Metric": _metric(jobs),
            "Time": _time(jobs, sequential),
            "Jobs": _tables(jobs, columns, equal, sequential),
            "Jobs that did not complete": _failed(jobs),
        }
    )
    names = list(jobs[0]["options"])
    swept = f"over {', '.join(names)}" if names else "of one job"
    soft = f'<p class="soft">{completed} of {len(jobs)} jobs completed.</p>'
    title = _plain(f"Sweep {swept}")
    body = f"{heading(title)}{soft}{'' if real else note}{_tiles(jobs)}{body}"
    return document(title, body + words(body))


def _plain(value: object) -> str:
    """Return a value as one line of at most 400 characters, without control characters."""
    return one_line(str(value), 400)


def _label(options: Mapping[str, Any]) -> str:
    return " ".join(f"{_plain(name)}={_format_choice(value)}" for name, value in options.items())


def _format_choice(value: object) -> str:
    return "default" if value is None else _plain(value)


def _metric_name(jobs: Jobs) -> str | None:
    """Return the metric of the jobs; None: no job has one, or metrics differ."""
    names = {job["metric"] for job in jobs if job["metric"] is not None}
    return names.pop() if len(names) == 1 else None


def _rows(jobs: Jobs, figure: str, names: Sequence[str]) -> list[DotRow]:
    """Return a row per combination of values of options ``names``, with its jobs' ``figure``.

    ``figure`` is the key of a result; jobs without this result are left out.
    """
    values_by_choice: dict[tuple[Any, ...], list[float]] = {}
    for job in jobs:
        if job[figure] is not None:
            key = tuple(job["options"][name] for name in names)
            values_by_choice.setdefault(key, []).append(job[figure])
    return [
        DotRow(label=_label(dict(zip(names, key, strict=True))), values=values_by_choice[key])
        for key in sorted(values_by_choice, key=lambda key: [_order(value) for value in key])
    ]


def _order(value: Any) -> tuple[int, float]:
    """Return the sort key of an option's value: numbers ascending, then all other values."""
    try:
        as_number = float(value)
    except (TypeError, ValueError):
        return 1, 0.0
    return (0, as_number) if as_number == as_number else (1, 0.0)


def _tiles(jobs: Jobs) -> str:
    """Return HTML: the options of best mean validation metric, their validation and test metric.

    Empty: the jobs have no metric in common.
    """
    metric, best = _best(jobs)
    if best is None:
        return ""
    tests = [job["test_metric"] for job in best.choice.jobs if job["test_metric"] is not None]
    form = _SCORES["valid_metric"][1]
    name = escape(_plain(metric))
    valid = DotRow(label="", values=[job["valid_metric"] for job in best.choice.jobs])
    mean = f", mean of {len(valid.values)} jobs" if len(valid.values) > 1 else ""
    tiles = [(valid.words(form), f"best validation {name}{mean}")]
    if tests:
        words = DotRow(label="", values=tests).words(form)
        tiles.append((words, f"test {name} of the same {'job' if len(tests) == 1 else 'jobs'}"))
    items = "".join(f'<div class="tile"><b>{a}</b><span>{b}</span></div>' for a, b in tiles)
    line = best_line(jobs)
    return f'<div class="tiles pairs">{items}</div>{f"<p>{line}</p>" if line else ""}'


def best_line(jobs: Jobs, *, as_html: bool = True) -> str:
    """Return a line with the best options and the confidence in them; empty without a choice."""
    metric, best = _best(jobs)
    if best is None or not best.choice.options:
        return ""
    chosen, sentence = _label(best.choice.options), best.sentence(_plain(metric), _label)
    sentence = f" ({sentence})" if sentence else ""
    if as_html:
        return f"Best by validation: <b>{escape(chosen)}</b>{escape(sentence)}"
    return f"best by validation: {chosen}{sentence}"


def _best(jobs: Jobs) -> tuple[str, Best | None]:
    """Return the jobs' metric and their best options; None: they have no metric in common."""
    metric = _metric_name(jobs)
    if metric is None:
        return "", None
    return metric, find_best(jobs, lower_is_better=_lower_is_better(metric))


def _lower_is_better(metric: str) -> bool:
    quality = find_metric(metric)
    return quality is not None and quality.lower_is_better


def _quality(metric: str, form: Callable[[Any], str]) -> Quantity:
    """Return a metric's format and range for plots.

    The range is 0 to 1, from 0 if lower is better, or unlimited for a user's function.
    """
    if _lower_is_better(metric):
        return Quantity(form=form, low=0.0)
    is_share = find_metric(metric) is not None or metric == "mrr" or "@" in metric
    return Quantity(form=form, low=0.0, high=1.0) if is_share else Quantity(form=form)


def _metric(jobs: Jobs) -> str:
    metric = _metric_name(jobs)
    if metric is None:
        if all(job["metric"] is None for job in jobs):
            return nothing("No job has a metric.")
        return nothing("The jobs have different metrics, which no plot can compare.")
    lower = _lower_is_better(metric)
    better = "lower" if lower else "higher"
    columns = []
    for figure, (word, form) in _SCORES.items():
        title = f"{word.capitalize()} {_plain(metric)}, {better} is better"
        cards = _option_cards(jobs, figure, title, _quality(metric, form), lower=lower)
        columns += [cards] if cards else []
    # Validation and test plots of the same options are side by side.
    pairs = zip_longest(*columns, fillvalue="")
    return grid([plot for pair in pairs for plot in pair if plot]) or nothing(
        "No job has a metric."
    )


def _time(jobs: Jobs, sequential: bool) -> str:
    if not sequential:
        why = "The jobs ran at the same time and shared the machine, so that their times are not"
        return nothing(f"{why} compared.")
    title = "Median time per epoch, lower is better"
    return grid(_option_cards(jobs, "epoch_time_s", title, _TIME, lower=True))


def _option_cards(
    jobs: Jobs, figure: str, title: str, quantity: Quantity, *, lower: bool
) -> list[str]:
    """Return plots of a result over combinations of all swept options, seeds apart.

    For several options, further plots are by one option each; for two, also a heat map.
    ``figure`` is the key of the result in a job; ``lower``: lower results are better.
    """
    names = [name for name in jobs[0]["options"] if name != "seed"]
    rows = _rows(jobs, figure, names)
    if not rows:
        return []
    draw = partial(_plot_card, quantity=quantity, lower=lower)
    cards = [draw(title, rows, note=_NOTES["jobs"])]
    if len(names) < 2:
        return cards
    cards += [
        draw(f"{title}, by {name}", _rows(jobs, figure, [name]), note=_NOTES["option"])
        for name in names
    ]
    if len(names) == 2:
        cards.append(_heat_card(title, jobs, figure, (names[0], names[1]), quantity.form, lower))
    return cards


def _plot_card(
    title: str, rows: Sequence[DotRow], *, note: str, quantity: Quantity, lower: bool
) -> str:
    if all(len(row.values) == 1 for row in rows):
        note = ""
    hidden = len(rows) - _MAX_ROWS
    if hidden > 0:
        rows = sorted(rows, key=lambda row: row.mean, reverse=not lower)[:_MAX_ROWS]
        note += f" The best {_MAX_ROWS} of {_MAX_ROWS + hidden} rows."
    plot = dot_plot(title, rows, quantity)
    note_html = f'<p class="soft">{escape(note.strip())}</p>' if note else ""
    return card(escape(_plain(title)), plot + note_html)


def _heat_card(
    title: str,
    jobs: Jobs,
    figure: str,
    names: tuple[str, str],
    form: Callable[[Any], str],
    lower: bool,
) -> str:
    """Return a heat map of a result over two options, darker if better.

    Empty: an option has a single value, or the map is too large.
    """
    down, across = (
        sorted(dict.fromkeys(job["options"][name] for job in jobs), key=_order) for name in names
    )
    if min(len(down), len(across)) < 2 or len(down) > _MAX_ROWS or len(across) > 12:
        return ""
    values: dict[tuple[Any, Any], list[float]] = {}
    for job in jobs:
        if job[figure] is not None:
            first, second = (job["options"][name] for name in names)
            values.setdefault((first, second), []).append(job[figure])
    means = {pair: statistics.fmean(of_jobs) for pair, of_jobs in values.items()}
    low, high = min(means.values()), max(means.values())

    def cell_of(pair: tuple[Any, Any]) -> tuple[float | None, str]:
        if pair not in means:
            return None, ABSENT
        share = (means[pair] - low) / (high - low) if high > low else 0.5
        return 8 + 42 * (1 - share if lower else share), escape(form(means[pair]))

    heads = [escape(_format_choice(value)) for value in across]
    rows = [
        (escape(_format_choice(first)), [cell_of((first, second)) for second in across])
        for first in down
    ]
    caption = (
        f"{_plain(names[0])} down, {_plain(names[1])} across: means over jobs, darker is better"
    )
    shaded = heat_table(caption, heads, rows)
    return card(escape(_plain(title)), f'<div class="wide">{shaded}</div>')


def _tables(jobs: Jobs, columns: Sequence[str], equal: Sequence[str], sequential: bool) -> str:
    """Return the table of all jobs with links to their pages, and equal results in a line."""
    metric = _metric_name(jobs)
    values = {name: {job[name] for job in jobs} - {None} for name in (*columns, *equal)}
    shared = [name for name in values if len(jobs) > 1 and len(values[name]) == 1]
    remaining = [name for name in columns if values[name] and name not in shared]
    parts = [remaining]
    if len(remaining) + len(jobs[0]["options"]) > _MAX_COLUMNS:
        data = [name for name in remaining if name in _DATA_COLUMNS]
        parts = [[name for name in remaining if name not in data], data]
    text = ", ".join(f"{_heading(name, metric)} {_written(name, *values[name])}" for name in shared)
    note = f'<p class="soft">The same in all jobs that have it: {escape(text)}.</p>' if text else ""
    if "speed_up" in remaining:
        note += (
            '<p class="soft">A speed-up is the time per epoch of the first job that does the same '
            "work over that of this job.</p>"
        )
    for line in remarks(jobs, sequential=sequential):
        note += f'<p class="soft">{escape(_plain(line))}.</p>'
    tables = "".join(
        f'<div class="card wide jobs">{_table(jobs, part, metric)}</div>' for part in parts if part
    )
    return (tables or f'<div class="card wide jobs">{_table(jobs, [], metric)}</div>') + note


def _table(jobs: Jobs, columns: Sequence[str], metric: str | None) -> str:
    names = list(jobs[0]["options"])
    own_metric = metric is None and any(job["metric"] is not None for job in jobs)
    # A line may break after a dot.
    heads = ["job", *(_plain(name).replace(".", ". ") for name in names)]
    heads += ["metric"] if own_metric else []
    heads += [_heading(name, metric) for name in columns]
    rows = []
    for job in jobs:
        choices = (escape(_format_choice(job["options"][name])) for name in names)
        row = [_job_cell(job), *(f'<td class="choice">{choice}</td>' for choice in choices)]
        row += [cell(_format_choice(job["metric"]))] if own_metric else []
        row += [cell(_written(name, job[name])) for name in columns]
        rows.append(row)
    return table(heads, rows)


def _heading(name: str, metric: str | None) -> str:
    word = _COLUMNS[name][0]
    return f"{word} {_plain(metric or 'metric')}" if name in _SCORES else word


def _written(name: str, value: Any) -> str:
    return ABSENT if value is None else _plain(_COLUMNS[name][1](value))


def _job_cell(job: Mapping[str, Any]) -> str:
    """Return an HTML cell with a job's number, as a link to its page if it has one, and a badge."""
    mark = badge(_plain(job["figures"])) if job["figures"] is not None else ""
    content = str(job["job"])
    if job["report"] is not None:
        # A relative address: whatever the folder is called, it cannot name a script.
        content = f'<a href="./{quote(job["report"])}">{content}</a>'
    return f'<td class="left">{content}{mark}</td>'


def _failed(jobs: Jobs) -> str:
    return "".join(
        f'<div class="error">job {job["job"]}, {escape(_label(job["options"]))}: '
        f"{escape(_format_choice(job['status']))}"
        f"{': ' + escape(_plain(job['error'])) if job['error'] else ''}</div>"
        for job in jobs
        if job["status"] != "completed"
    )
