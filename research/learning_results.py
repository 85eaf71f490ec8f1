"""Print and draw what the runs of `learning.py` found.

    python research/learning_results.py [RESULTS] [--arms "default,curriculum"] [--plot arms.svg]
    python research/learning_results.py --arms signal --why docs/images/learn.svg
    python research/learning_results.py --arms "SmolLM2: signal" --why docs/images/smollm2.svg

A row of the CSV is one measure of one run (arm, seed) at one place: `at` counts rollouts, for
`quarter …` quarters of the run. `all` is the value over all tasks, the other columns are the tasks.
An arm with a colon belongs to another experiment, which is named before it.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from reasoning_gym_environment.evaluation.estimators import student_quantile
from reasoning_gym_environment.util.values import group_by

Result = dict[str, Any]
"""One run, as `learning.py` measures it."""

Curve = Sequence[tuple[float, float]]
"""Rollouts and the share of held-out items solved after them."""

KEYS = ("arm", "seed", "measure", "at", "all")
_GROUP_SIZE = 8
"""Of `examples/learn/reinforce.py`, which needs PyTorch."""

SHIPPED = Path(__file__).with_name("learning_results.csv")


def append_result(path: Path, result: Result) -> None:
    """Write one more run, its numbers with six digits."""
    text = io.StringIO()
    columns = [*KEYS, *sorted(result["curve"][0]["tasks"]["default"])]
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    if not path.exists():
        writer.writeheader()
    writer.writerows(to_rows(result))
    with path.open("a", encoding="utf-8") as file:
        file.write(text.getvalue())


def to_rows(result: Result) -> Iterator[dict[str, Any]]:
    """Return the rows of a run."""

    def row(measure: str, at: float, values: Mapping[str, float]) -> dict[str, Any]:
        numbers = {name: f"{value:.6g}" for name, value in values.items()}
        return {
            "arm": result["arm"],
            "seed": result["seed"],
            "measure": measure,
            "at": at,
        } | numbers

    for point in result["curve"]:
        for difficulty, share in point["solved"].items():
            values = {"all": share, **point["tasks"][difficulty]}
            yield row(f"held-out solved, {difficulty}", point["rollouts"], values)
    for window in result["training"]:
        for measure in ("solved", "signal"):
            yield row(
                f"training {measure}", window["rollouts"], {"all": window[measure]}
            )
        if window["levels"]:
            yield row("training level", window["rollouts"], window["levels"])
    for number, quarter in enumerate(result["quarters"], 1):
        for measure, value in quarter.items():
            yield row(f"quarter {measure}", number, {"all": value})
    yield row("log-odds over the levels", 0, result["spans"])
    for measure in ("steps", "seconds_of_training"):
        yield row(measure, 0, {"all": result[measure]})


def read_results(path: Path) -> list[Result]:
    """Return the runs of a file, in its order."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    runs = group_by(lambda row: (row["arm"], int(row["seed"])), rows)
    return [to_result(arm, seed, own) for (arm, seed), own in runs.items()]


def to_result(arm: str, seed: int, rows: Sequence[dict[str, str]]) -> Result:
    """Return a run from its rows; its curve and its windows in the order of their rollouts."""
    curve: dict[int, Result] = {}
    training: dict[int, Result] = {}
    quarters: dict[int, dict[str, float]] = {}
    result: Result = {"arm": arm, "seed": seed}
    for row in rows:
        kind, _, what = row["measure"].partition(" ")
        at = int(row["at"])
        tasks = {
            name: float(row[name]) for name in row if name not in KEYS and row[name]
        }
        if kind == "held-out":
            point = curve.setdefault(at, {"rollouts": at, "solved": {}, "tasks": {}})
            difficulty = what.removeprefix("solved, ")
            point["solved"][difficulty] = float(row["all"])
            point["tasks"][difficulty] = tasks
        elif row["measure"] == "training level":
            training[at]["levels"] = tasks
        elif kind == "training":
            training.setdefault(at, {"rollouts": at, "levels": {}})[what] = float(
                row["all"]
            )
        elif kind == "quarter":
            quarters.setdefault(at, {})[what] = float(row["all"])
        elif kind == "log-odds":
            result["spans"] = tasks
        else:
            result[kind] = int(row["all"])
    parts = {"curve": curve, "training": training, "quarters": quarters}
    return result | {name: list(part.values()) for name, part in parts.items()}


def held_out(point: Result, difficulty: str = "") -> float:
    """Return the solved share of the held-out items, of one difficulty or of all alike."""
    return statistics.mean(
        float(v) for d, v in point["solved"].items() if difficulty in ("", d)
    )


def mean_curve(runs: Sequence[Result]) -> Curve:
    """Average the curves of an arm's seeds, whose evaluations come at nearly the same places."""
    at_one_place = zip(*(run["curve"] for run in runs), strict=True)
    return [
        (
            statistics.mean(p["rollouts"] for p in own),
            statistics.mean(held_out(p) for p in own),
        )
        for own in at_one_place
    ]


def rollouts_until(curve: Curve, wanted: float) -> float:
    """Return the rollouts at which a curve first reaches a share, infinity if it never does.

    Between two evaluations the curve is a straight line.
    """
    if curve[0][1] >= wanted:
        return 0.0
    for (used, share), (later, more) in pairwise(curve):
        if more >= wanted:
            return used + (later - used) * (wanted - share) / (more - share)
    return math.inf


def spread(values: Sequence[float]) -> str:
    """Return a mean with half the width of its 95 % interval over seeds, as text."""
    if len(values) == 1:
        return f"{values[0]:.3f}"
    error = statistics.stdev(values) / len(values) ** 0.5
    return f"{statistics.mean(values):.3f} ± {student_quantile(len(values) - 1) * error:.3f}"


def summary(results: Sequence[Result]) -> str:
    """Return the table of arms: rollouts to half and all of the first arm's gain, final shares."""
    by_arm = group_by(lambda result: str(result["arm"]), results)
    first = mean_curve(next(iter(by_arm.values())))
    begin, end = first[0][1], first[-1][1]
    wanted = [(begin + end) / 2, end]
    start = results[0]["curve"][0]["solved"]
    heads = [*(f"to {share:.3f}" for share in wanted), "at the end", *start]
    lines = [
        "rollouts until a share of all held-out items is solved, and shares at the end"
    ]
    lines += ["arm (runs)".ljust(34) + "".join(f"{head:>16}" for head in heads)]
    shares = [begin, *start.values()]
    lines += ["at the start".ljust(66) + "".join(f"{share:16.3f}" for share in shares)]
    for arm, runs in by_arm.items():
        curve, ends = mean_curve(runs), [run["curve"][-1] for run in runs]
        cells = [f"{rollouts_until(curve, share):.0f}" for share in wanted]
        cells += [spread([held_out(end) for end in ends])]
        cells += [spread([end["solved"][each] for end in ends]) for each in start]
        lines.append(
            f"{arm} ({len(runs)})".ljust(34) + "".join(f"{cell:>16}" for cell in cells)
        )
    return "\n".join(lines)


def over_the_run(run: Result) -> float:
    """Return the mean of the held-out shares of a run's snapshots, the start left out."""
    return statistics.mean(held_out(point) for point in run["curve"][1:])


def area(run: Result) -> float:
    """Return the mean height of the held-out curve, the start included."""
    points = [(float(each["rollouts"]), held_out(each)) for each in run["curve"]]
    whole = sum((b - a) * (low + high) / 2 for (a, low), (b, high) in pairwise(points))
    return whole / (points[-1][0] - points[0][0])


def rollouts_per_signal(run: Result) -> float:
    """Return the rollouts that were paid for each group with signal."""
    windows = [{"rollouts": 0}, *run["training"]]
    mixed = sum(
        (b["rollouts"] - a["rollouts"]) * b["signal"] for a, b in pairwise(windows)
    )
    return _GROUP_SIZE * float(windows[-1]["rollouts"] / mixed)


def memorized(run: Result) -> float:
    """Return by how much problems asked again are solved more often than fresh ones like them."""
    pairs = [each for each in run["quarters"] if "again_solved" in each]
    if not pairs:
        return math.nan
    return statistics.mean(
        float(each["again_solved"] - each["alike_solved"]) for each in pairs
    )


def at_the_end(run: Result) -> float:
    """Return the held-out share of a run's last snapshot."""
    return held_out(run["curve"][-1])


def gains(results: Sequence[Result]) -> str:
    """Return the table of arms against the first: what was learned, and what was paid for it."""
    by_arm = group_by(lambda result: str(result["arm"]), results)
    first = {run["seed"]: run for run in next(iter(by_arm.values()))}
    shares = {
        "over the run": over_the_run,
        "below curve": area,
        "at the end": at_the_end,
    }
    heads = [head for name in shares for head in (name, "difference")]
    heads += ["per signal", "asked again"]
    lines = [
        "held-out shares, differences paired by seed; rollouts per group with signal;"
    ]
    lines += ["solved share of problems asked again less that of fresh ones alike"]
    lines += ["arm (runs)".ljust(34) + "".join(f"{head:>17}" for head in heads)]
    for arm, runs in by_arm.items():
        cells = []
        for value in shares.values():
            cells.append(spread([value(run) for run in runs]))
            paired = [value(run) - value(first[run["seed"]]) for run in runs]
            cells.append(spread(paired) if any(paired) else "")
        cells.append(f"{statistics.mean(map(rollouts_per_signal, runs)):.1f}")
        again = statistics.mean(map(memorized, runs))
        cells.append("" if math.isnan(again) else f"{again:+.3f}")
        lines.append(
            f"{arm} ({len(runs)})".ljust(34) + "".join(f"{cell:>17}" for cell in cells)
        )
    return "\n".join(lines)


def plot(path: Path, results: Sequence[Result]) -> None:
    """Draw the held-out share solved, the groups with signal and the mean level of the arms."""
    from pictures import figure, save  # need matplotlib

    made, (solved, signal, levels) = figure(3, width=13)
    for number, (arm, runs) in enumerate(
        group_by(lambda r: str(r["arm"]), results).items()
    ):
        curves = [
            [(each["rollouts"], held_out(each)) for each in run["curve"]]
            for run in runs
        ]
        draw = partial(_draw, label=arm, color=f"C{number}")
        draw(solved, curves)
        draw(signal, [_over_time(run, lambda window: window["signal"]) for run in runs])
        if all(window["levels"] for run in runs for window in run["training"]):
            draw(levels, [_over_time(run, _mean_level) for run in runs])
    solved.set_title("held-out items solved")
    signal.set_title("groups with signal")
    levels.set_title("mean level of the problems")
    made.legend(
        *solved.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=5,
        frameon=False,
        fontsize="small",
    )
    signal.set_ylim(0, 1)
    levels.set_ylim(0)
    for axes in (solved, signal, levels):
        axes.set_xlabel("rollouts")
    save(made, path)


def plot_why(path: Path, runs: Sequence[Result]) -> None:
    """Draw what one arm learns, and why the share solved in training does not show it."""
    from pictures import figure, legend_above, save

    made, (solved, asked) = figure(2, width=10)
    curves = [
        [(p["rollouts"], held_out(p, "0.0")) for p in run["curve"]] for run in runs
    ]
    _draw(solved, curves, label="held-out items", color="C0")
    training = [_over_time(run, lambda window: window["solved"]) for run in runs]
    _draw(solved, training, label="problems in training", color="C1")
    for measure, label, color in (
        ("again", "groups that ask a problem again", "C2"),
        ("fresh_signal", "fresh groups with signal", "C3"),
    ):
        by_quarter = [
            [
                (run["training"][-1]["rollouts"] * (number + 0.5) / 4, quarter[measure])
                for number, quarter in enumerate(run["quarters"])
            ]
            for run in runs
        ]
        _draw(asked, by_quarter, label=label, color=color)
    solved.set_ylabel("share solved")
    asked.set_ylabel("share, by quarter of the run")
    for axes in (solved, asked):
        axes.set_ylim(0, 0.8)
        axes.set_xlim(0)
        axes.set_xlabel("rollouts")
        legend_above(axes)
    save(made, path)


def _over_time(
    run: Result, value: Callable[[Result], float]
) -> list[tuple[int, float]]:
    whole = run["training"][:-1]
    return [(window["rollouts"], value(window)) for window in whole]


def _mean_level(window: Result) -> float:
    return statistics.mean(map(float, window["levels"].values()))


def _draw(axes: Any, curves: Sequence[Curve], *, label: str, color: str) -> None:
    """Draw the mean over seeds as a line, each seed thinly."""
    points = [
        list(zip(*at_one_place, strict=True))
        for at_one_place in zip(*curves, strict=False)
    ]
    means = [(statistics.mean(x), statistics.mean(y)) for x, y in points]
    axes.plot(*zip(*means, strict=True), label=label, color=color)
    for curve in curves:
        axes.plot(*zip(*curve, strict=True), color=color, linewidth=0.5, alpha=0.6)


def of_arms(results: Sequence[Result], arms: Sequence[str]) -> list[Result]:
    """Return the runs of these arms by experiment, arm (the default first) and seed."""

    def place(run: Result) -> tuple[str, bool, str, int]:
        experiment, arm = experiment_and_arm(run)
        return experiment, arm != "default", arm, run["seed"]

    return sorted((run for run in results if run["arm"] in arms), key=place)


def experiment_and_arm(run: Result) -> tuple[str, str]:
    """Split the name of an arm; the first experiment has no name."""
    experiment, _, arm = run["arm"].rpartition(": ")
    return experiment, arm


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", nargs="?", type=Path, default=SHIPPED)
    parser.add_argument(
        "--arms", help="their names, with commas between (default: all)"
    )
    parser.add_argument("--plot", type=Path, help="draw the arms into this file")
    parser.add_argument(
        "--why", type=Path, help="draw what they learn and ask into this file"
    )
    options = parser.parse_args()
    found = read_results(options.results)
    names = options.arms.split(",") if options.arms else [run["arm"] for run in found]
    runs = of_arms(found, names)
    for experiment, own in group_by(
        lambda run: experiment_and_arm(run)[0], runs
    ).items():
        print(f"\n{experiment}\n{summary(own)}\n\n{gains(own)}")
    if options.plot:
        plot(options.plot, runs)
    if options.why:
        plot_why(options.why, runs)
