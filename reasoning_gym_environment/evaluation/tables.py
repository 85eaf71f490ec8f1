"""An evaluation's metrics as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

SHOWN = 10
"""So many of the worst tasks, and as many of the best."""

_LEGEND = (
    "chance: what the best constant answer solves; ! where the interval isn't above it\n"
    "format: no answer, or several; cut: truncated"
)


def headline(metrics: Mapping[str, float]) -> str:
    """The evaluation in one line."""
    names = ("percent_correct", "score", "truncated", "unscored")
    known = [name for name in names if f"eval/{name}" in metrics]
    return ", ".join(f"{name} {metrics[f'eval/{name}']:.3f}" for name in known)


def evaluation_table(metrics: Mapping[str, float], *, attempts: int) -> str:
    """Overall, by difficulty and category, then the worst tasks and the best.

    Args:
        attempts: the k of pass@k.
    """
    return "\n".join(_lines(metrics, attempts))


def _lines(metrics: Mapping[str, float], attempts: int) -> Iterator[str]:
    def rows(names: Sequence[str], kind: str) -> Iterator[str]:
        for name in names:
            yield _row(f"  {name}", _below(metrics, f"eval/{kind}/{name}/"), attempts)

    yield (
        f"{'':30} {'items':>6} {'solved':>7} {'95 %':>12} {'chance':>7} {'score':>6} "
        f"{f'pass@{attempts}':>8} {'unscored':>8} {'format':>7} {'cut':>7} {'tokens':>7}"
    )
    yield _row("every item counts the same", _below(metrics, "eval/"), attempts)
    yield _row("every task counts the same", _below(metrics, "eval/macro/"), attempts)
    for kind in ("difficulty", "category"):
        if names := _names(metrics, kind):
            yield from ("", f"by {kind}", *rows(names, kind))
    tasks = sorted(
        _names(metrics, "task"),
        key=lambda task: [metrics.get(f"eval/task/{task}/{n}", 2.0) for n in ("solved", "score")],
    )
    if len(tasks) <= 2 * SHOWN:
        yield from ("", "tasks, the worst first", *rows(tasks, "task"))
    else:
        yield from ("", f"the worst {SHOWN} of {len(tasks)} tasks", *rows(tasks[:SHOWN], "task"))
        yield from ("", f"the best {SHOWN}", *rows(tasks[: -SHOWN - 1 : -1], "task"))
    yield from ("", _LEGEND)


def _below(metrics: Mapping[str, float], prefix: str) -> dict[str, float]:
    return {n.removeprefix(prefix): v for n, v in metrics.items() if n.startswith(prefix)}


def _names(metrics: Mapping[str, float], kind: str) -> list[str]:
    """The names that have metrics below `eval/<kind>/`, in their order."""
    names = (name.split("/")[0] for name in _below(metrics, f"eval/{kind}/"))
    return list(dict.fromkeys(names))


def _row(title: str, numbers: Mapping[str, float], attempts: int) -> str:
    def cell(name: str, form: str) -> str:
        return format(numbers[name], form) if name in numbers else "-"

    interval, mark = "-", " "
    if "solved_low" in numbers:
        low, high = numbers["solved_low"], numbers["solved_high"]
        interval = f"{low * 100:.1f} - {high * 100:.1f}"
        mark = "!" if low <= numbers.get("chance", -1.0) else " "
    return (
        f"{title:30} {cell('items', '.0f'):>6} {cell('solved', '.1%'):>7} {interval:>12} "
        f"{cell('chance', '.1%'):>6}{mark} {cell('score', '.3f'):>6} "
        f"{cell(f'pass@{attempts}', '.1%'):>8} {cell('unscored', '.1%'):>8} "
        f"{cell('format_failures', '.1%'):>7} {cell('truncated', '.1%'):>7} "
        f"{cell('completion_tokens', '.0f'):>7}"
    ).rstrip()
