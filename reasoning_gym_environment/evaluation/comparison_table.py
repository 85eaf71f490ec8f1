"""A comparison as text for people."""

from __future__ import annotations

from collections.abc import Iterator

from .comparison import Change, Comparison

LEAST_ITEMS = 6
"""Of a task, to tell a change from noise at 5 %: of 5, 2 of 32 patterns of signs are as extreme."""

_HEADER = f"{'':32} {'items':>6} {'before':>8} {'after':>8} {'change':>8}  {'95 %':>15}"


def comparison_table(comparison: Comparison) -> str:
    """Overall, then every task: those beyond noise first, each part from loss to gain."""
    return "\n".join(_lines(comparison))


def _lines(comparison: Comparison) -> Iterator[str]:
    ranked = sorted(comparison.tasks.items(), key=lambda entry: entry[1].difference.value)
    beyond = [(task, change) for task, change in ranked if change.beyond_noise]
    within = [(task, change) for task, change in ranked if not change.beyond_noise]
    yield _HEADER
    yield _row("solved, all items alike", comparison.by_items)
    yield _row("solved, all tasks alike", comparison.by_tasks)
    yield _row("score, all items alike", comparison.score)
    yield ""
    if all(change.items < LEAST_ITEMS for _, change in ranked):
        yield f"too few items per task to tell ({LEAST_ITEMS} at the least)"
    else:
        yield f"{len(beyond)} of {len(ranked)} tasks changed beyond noise (solved)"
        yield from (_row(f"  {task}", change) for task, change in beyond)
        yield from ("", "within noise") if within else ()
    yield from (_row(f"  {task}", change) for task, change in within)
    yield ""
    yield (
        "Beyond noise: a paired randomisation test, at a false discovery rate of 5 % over all\n"
        "tasks (Benjamini-Hochberg). It takes 6 items of a task at the least, rather 10 to 20.\n"
        "Intervals are each row's own 95 %: of many tasks, some leave out 0 by chance."
    )
    yield _left_out(comparison)


def _row(title: str, change: Change) -> str:
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
