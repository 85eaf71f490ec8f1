"""Writes an evaluation's numbers, and a comparison of two, as text for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .comparison import Change, Comparison
from .metrics import EvaluationReport, Slice

SHOWN = 10
"""So many of the worst tasks, and as many of the best."""

LEAST_ITEMS = 6
"""Of a task, to tell a change from noise at 5 %: of 5, 2 of 32 patterns of signs are as extreme."""

_NOTHING = Slice(size=0, shares={}, means={})
_LEGEND = (
    "chance: what the best constant answer solves; trivial: what a copy from the question, or a\n"
    "sum of its numbers, solves; ! where the interval isn't above it\n"
    "format: no answer, or several; cut: truncated"
)
_CHANGES = f"{'':32} {'items':>6} {'before':>8} {'after':>8} {'change':>8}  {'95 %':>15}"


def headline(report: EvaluationReport) -> str:
    """Write the numbers of the default samples in one line; empty without any."""
    overall = report.default.by_items if report.default else _NOTHING
    measures = {"percent_correct": "solved"} | {n: n for n in ("score", "truncated", "unscored")}
    known = {name: overall.value(measure) for name, measure in measures.items()}
    return ", ".join(f"{name} {value:.3f}" for name, value in known.items() if value is not None)


def evaluation_table(report: EvaluationReport) -> str:
    """Write the numbers overall, by difficulty and category, then of the worst and best tasks."""
    return "\n".join(_evaluation_lines(report))


def _evaluation_lines(report: EvaluationReport) -> Iterator[str]:
    def rows(slices: Iterable[tuple[str, Slice]]) -> Iterator[str]:
        return (_row(f"  {name}", own, own.size, k) for name, own in slices)

    default, k = report.default, report.attempts
    yield (
        f"{'':30} {'items':>6} {'solved':>7} {'95 %':>12} {'chance':>7} {'trivial':>7} "
        f"{'score':>6} {f'pass@{k}':>8} {'unscored':>8} {'format':>7} {'cut':>7} {'tokens':>7}"
    )
    overall, macro = (default.by_items, default.by_tasks) if default else (_NOTHING, _NOTHING)
    yield _row("every item counts the same", overall, overall.size, k)
    yield _row("every task counts the same", macro, 0, k)
    if report.difficulties:
        named = ((f"{each:g}", own.by_items) for each, own in report.difficulties.items())
        yield from ("", "by difficulty", *rows(named))
    if default:
        yield from ("", "by category", *rows(default.categories.items()))
    tasks = sorted(default.tasks.items() if default else (), key=lambda entry: _success(entry[1]))
    if len(tasks) <= 2 * SHOWN:
        yield from ("", "tasks, the worst first", *rows(tasks))
    else:
        yield from ("", f"the worst {SHOWN} of {len(tasks)} tasks", *rows(tasks[:SHOWN]))
        yield from ("", f"the best {SHOWN}", *rows(tasks[: -SHOWN - 1 : -1]))
    yield from ("", _LEGEND)


def _success(task: Slice) -> list[float]:
    """Rank a task; those of which nothing is known come last."""
    values = (task.value("solved"), task.value("score"))
    return [2.0 if value is None else value for value in values]


def _row(title: str, own: Slice, items: int, k: int) -> str:
    """Write one line of numbers.

    Args:
        items: 0 where they are not shown.
        k: of pass@k.
    """

    def cell(name: str, form: str) -> str:
        value = own.value(name)
        return "-" if value is None else format(value, form)

    def floor(name: str) -> str:
        mark = "!" if solved and solved.low <= own.means.get(name, -1.0) else " "
        return cell(name, ".1%") + mark

    solved, interval = own.shares.get("solved"), "-"
    if solved:
        interval = f"{solved.low * 100:.1f} - {solved.high * 100:.1f}"
    return (
        f"{title:30} {items or '-':>6} {cell('solved', '.1%'):>7} {interval:>12} "
        f"{floor('chance'):>7} {floor('no_reasoning_floor'):>7} "
        f"{cell('score', '.3f'):>6} {cell(f'pass@{k}', '.1%'):>8} {cell('unscored', '.1%'):>8} "
        f"{cell('format_failures', '.1%'):>7} {cell('truncated', '.1%'):>7} "
        f"{cell('completion_tokens', '.0f'):>7}"
    ).rstrip()


def comparison_table(comparison: Comparison) -> str:
    """Write the change overall, then of tasks: beyond noise first, each part from loss to gain."""
    return "\n".join(_comparison_lines(comparison))


def _comparison_lines(comparison: Comparison) -> Iterator[str]:
    ranked = sorted(comparison.tasks.items(), key=lambda entry: entry[1].difference.value)
    beyond = [(task, change) for task, change in ranked if change.beyond_noise]
    within = [(task, change) for task, change in ranked if not change.beyond_noise]
    yield _CHANGES
    yield _change_row("solved, all items alike", comparison.by_items)
    yield _change_row("solved, all tasks alike", comparison.by_tasks)
    yield _change_row("score, all items alike", comparison.score)
    yield ""
    if all(change.items < LEAST_ITEMS for _, change in ranked):
        yield f"too few items per task to tell ({LEAST_ITEMS} at the least)"
    else:
        yield f"{len(beyond)} of {len(ranked)} tasks changed beyond noise (solved)"
        yield from (_change_row(f"  {task}", change) for task, change in beyond)
        yield from ("", "within noise") if within else ()
    yield from (_change_row(f"  {task}", change) for task, change in within)
    yield ""
    yield (
        "Beyond noise: a paired randomisation test, at a false discovery rate of 5 % over all\n"
        "tasks (Benjamini-Hochberg). It takes 6 items of a task at the least, rather 10 to 20.\n"
        "Intervals are each row's own 95 %: of many tasks, some leave out 0 by chance."
    )
    yield _left_out(comparison)


def _change_row(title: str, change: Change) -> str:
    difference = change.difference
    interval = f"{difference.low * 100:+.1f} to {difference.high * 100:+.1f}"
    return (
        f"{title:32} {change.items:>6} {change.before:>8.1%} {change.after:>8.1%} "
        f"{difference.value * 100:>+8.1f}  {interval:>15}"
    )


def _left_out(comparison: Comparison) -> str:
    return (
        f"Left out: {comparison.only_before} items only before, {comparison.only_after} only "
        f"after, {comparison.unscored} unscored in one."
    )
