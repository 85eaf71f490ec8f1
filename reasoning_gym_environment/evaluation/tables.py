"""An evaluation's metrics as a line and as a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..util.values import table
from .metrics import Coverage, EvaluationReport, Slice

MAX_TASKS = 10
"""How many of the worst tasks the table shows, and of the best that are solved at all."""


LEAST_BOXED_SHARE = 0.01
"""Of replies with a box and no tags, below which the table is silent."""

LEGEND = {
    "chance": "what the best constant answer solves, with its 95 % interval (!: that of solved is "
    "not above it)",
    "no reasoning": "the same of the best rule that copies from the question or counts in it",
    "format": "no answer, or several",
    "cut": "truncated",
}
"""What columns of the table mean."""


def headline(report: EvaluationReport) -> str:
    """Return the main numbers of the default samples in one line; empty without any."""
    if report.default is None:
        return ""
    overall = report.default.by_items
    forms = {"solved": ".1%", "score": ".3f", "truncated": ".1%"}
    parts = []
    for name, form in forms.items():
        value = overall.value(name)
        if value is not None:
            parts.append(f"{name} {value:{form}}")
    return ", ".join([*parts, f"of {overall.coverage}"])


def evaluation_table(report: EvaluationReport) -> str:
    """Return a table: overall, by difficulty and category, and the worst and best tasks."""
    pass_at = f"pass@{report.attempts}"
    least_telling = (
        *("no reasoning", "unscored", "score", "format", pass_at, "cut", "tokens"),
    )
    legend = dict(LEGEND)
    if report.attempts_are_alike:
        legend[pass_at] = (
            f"~: attempts at temperature {report.temperature:g} are nearly alike, so it says "
            "little more than solved; for pass@k, set --env.eval_temperature to 0.6 or more"
        )
    return table(list(_table_rows(report)), drop=least_telling, legend=legend)


def _table_rows(report: EvaluationReport) -> Iterator[Sequence[str]]:
    def rows(slices: Iterable[tuple[str, Slice]]) -> Iterator[list[str]]:
        return (_row(f"  {name}", part, report) for name, part in slices)

    default = report.default
    k = report.attempts
    if report.coverage.missing:
        yield from (f"INCOMPLETE: the shares stand on {report.coverage}", "")
    missing = [item.to_json() for item in report.missing_items]
    if missing:
        yield from (*missing_lines("the evaluation set", missing), "")
    names = f"items solved 95_% chance no_reasoning score pass@{k} unscored format cut tokens"
    yield ["", *(name.replace("_", " ") for name in names.split())]
    none = Slice(coverage=Coverage(scored=0, items=0), shares={}, means={})
    overall, macro = (default.by_items, default.by_tasks) if default else (none, none)
    yield _row("mean over items", overall, report)
    yield _row("mean over tasks", replace(macro, coverage=none.coverage), report)
    if report.difficulties:
        named = (
            (f"{difficulty:g}", part.by_items)
            for difficulty, part in report.difficulties.items()
        )
        yield from ("", "by difficulty", *rows(named))
    if default and default.sources:
        yield from ("", "by source", *rows(default.sources.items()))
    if default:
        yield from ("", "by category", *rows(default.categories.items()))
    yield from _task_rows(default.tasks if default else {}, report)
    if report.few_questions:
        yield ""
    for name, number in report.few_questions.items():
        yield f"{name} has only {number} questions: each is asked once"
    if report.boxed_share >= LEAST_BOXED_SHARE:
        yield (
            f"{report.boxed_share:.0%} of the replies have \\boxed{{}} and no tags: "
            "--env.answer_format boxed, which `rescore` takes too"
        )
    if report.also_trained_on:
        yield from ("", *_trained_rows(report))


def _task_rows(
    tasks: Mapping[str, Slice], report: EvaluationReport
) -> Iterator[Sequence[str]]:
    """Yield the rows of all tasks, or of the worst and the best where there are many."""

    def success(entry: tuple[str, Slice]) -> list[float]:
        values = (entry[1].value("solved"), entry[1].value("score"))
        # Tasks without a value come last.
        return [2.0 if value is None else value for value in values]

    entries = sorted(tasks.items(), key=success)
    worst = [entry for entry in entries if success(entry)[0] < 1][:MAX_TASKS]
    best = [entry for entry in reversed(entries) if 0 < success(entry)[0] <= 1]
    sections = {
        f"worst {len(worst)} of {len(entries)} tasks": worst,
        f"best {len(best[:MAX_TASKS])}": best[:MAX_TASKS],
    }
    if len(entries) <= 2 * MAX_TASKS:
        sections = {"tasks, worst first": entries}
    for title, shown in sections.items():
        if shown:
            yield from ("", title)
        for name, part in shown:
            yield _row(f"  {name}", part, report)


def _trained_rows(report: EvaluationReport) -> Iterator[str]:
    """Yield which items training asks too, and the solved share with and without them."""
    levels = ", ".join(
        f"{name} ({items})" for name, items in report.also_trained_on.items()
    )
    yield f"also trained on: {levels}"
    shares = [
        part.value("solved")
        for part in (report.with_trained, report.without_trained)
        if part is not None
    ]
    if len(shares) == 2 and None not in shares:
        yield f"solved of all items {shares[0]:.1%}, without these {shares[1]:.1%}"


def missing_lines(subject: str, items: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield lines that name what an evaluation set lacks, in the form of `metrics.json`."""
    yield f"INCOMPLETE: {subject} lacks {len(items)} items, which could not be made"
    for item in items[:MAX_TASKS]:
        yield f"  {json.dumps(item['recipe'], sort_keys=True)}: {item['reason']}"
    if len(items) > MAX_TASKS:
        yield f"  and {len(items) - MAX_TASKS} more: missing_items in metrics.json"


def _row(title: str, part: Slice, report: EvaluationReport) -> list[str]:
    """Return one row of the table, with pass@k; no items are shown as unknown."""

    def cell(name: str, form: str) -> str:
        value = part.value(name)
        return "-" if value is None else format(value, form)

    def floor(name: str) -> str:
        mark = "!" if solved and solved.low <= part.means.get(name, -1.0) else " "
        text = cell(name, ".1%")
        if name in part.floor_intervals:
            low, high = part.floor_intervals[name]
            text += f" ({low * 100:.1f} to {high * 100:.1f})"
        return text + mark

    pass_at_k = cell(f"pass@{report.attempts}", ".1%")
    if report.attempts_are_alike and pass_at_k != "-":
        pass_at_k += "~"
    scored, size = part.coverage
    solved = part.shares.get("solved")
    return [
        title,
        f"{scored}/{size}" if scored < size else str(size or "-"),
        cell("solved", ".1%"),
        f"{solved.low * 100:.1f} - {solved.high * 100:.1f}" if solved else "-",
        *(floor("chance"), floor("no_reasoning_floor"), cell("score", ".3f")),
        pass_at_k,
        *(cell(name, ".1%") for name in ("unscored", "format_failures", "truncated")),
        cell("completion_tokens", ".0f"),
    ]
