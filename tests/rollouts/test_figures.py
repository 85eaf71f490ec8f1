"""The figures of a run: equal to ones computed apart, and which rows are marked."""

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, variance

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.evaluation.estimators import student_quantile
from reasoning_gym_environment.records import Recipe, Status
from reasoning_gym_environment.rollouts.differences import (
    Sums,
    corrected,
    difference,
    normal_deviate,
    students_t,
)
from reasoning_gym_environment.rollouts.figures import (
    WORTH_A_LOOK,
    Figure,
    RunFigures,
    part_bounds,
)
from reasoning_gym_environment.storage.rows import StoredGroup, StoredRollout

ATTEMPTS = 4


def rollout(
    *,
    solved: bool,
    tokens: int,
    status: Status | None = None,
) -> StoredRollout:
    """A rollout that is solved or wrong, or has another status; cut from 480 tokens on."""
    status = status or (Status.SOLVED if solved else Status.WRONG)
    is_scored = status is not Status.UNSCORED
    return StoredRollout(
        conversation=[{"role": "assistant", "content": "…"}],
        score=float(solved) / 2,
        answer="1",
        status=status,
        detail="",
        raw_score=float(solved) if is_scored else None,
        raw_form_score=None,
        tagged_form_score=None,
        length_factor=1.0,
        finish_reason="length" if tokens >= 480 else "stop",
        tokens=50 + tokens,
        completion_tokens=tokens,
    )


def group(
    number: int,
    share: float,
    *,
    rng: random.Random,
    task: str = "gcd",
    level: int | None = 1,
    silent: float = 0.0,
    unscored: float = 0.0,
) -> StoredGroup:
    """A group of which about a share is solved."""
    rollouts = []
    for _ in range(ATTEMPTS):
        status = None
        if rng.random() < silent:
            status = Status.NO_ANSWER
        if rng.random() < unscored:
            status = Status.UNSCORED
        solved = status is None and rng.random() < share
        tokens = rng.randrange(50, 500)
        rollouts.append(rollout(solved=solved, tokens=tokens, status=status))
    recipe = Recipe(task=task, seed=2 * number, level=level)
    return StoredGroup(rollouts=rollouts, recipe=recipe, oracle="1", number=number)


def figures_of(groups: Sequence[StoredGroup]) -> RunFigures:
    figures = RunFigures()
    for each in groups:
        figures.add(each, "arithmetic")
    return figures


def row(figures: RunFigures, measure: str, **settings: float) -> Figure:
    [found] = [
        each for each in figures.all_figures(**settings) if each.measure == measure
    ]
    return found


def marked(figures: RunFigures, **settings: float) -> set[str]:
    return {each.measure for each in figures.all_figures(**settings) if each.marked}


def varied_groups(count: int, *, seed: int = 0) -> list[StoredGroup]:
    """Groups of three tasks on rising levels, of which some have no score and no answer."""
    rng = random.Random(seed)
    return [
        group(
            number,
            0.2 + 0.5 * number / count,
            rng=rng,
            task=rng.choice(["gcd", "lcm", "maze"]),
            level=rng.choice([1, 2, 1 + 3 * number // count]),
            silent=0.1,
            unscored=0.05,
        )
        for number in range(1, count + 1)
    ]


def solved_share(each: StoredGroup) -> float | None:
    return each.solved / len(each.scored) if each.scored else None


def missing_share(each: StoredGroup) -> float | None:
    ended = [r for r in each.rollouts if r.finish_reason == "stop"]
    if not ended:
        return None
    return sum(r.status is Status.NO_ANSWER for r in ended) / len(ended)


def truncated_share(each: StoredGroup) -> float:
    return fmean(r.finish_reason == "length" for r in each.rollouts)


@pytest.mark.parametrize(("count", "size"), [(1000, 100), (250, 25), (90, 30)])
def test_means_are_those_of_the_groups_of_each_part(count: int, size: int) -> None:
    groups = varied_groups(count)
    shares = [
        fmean(
            share
            for each in groups[begin : begin + size]
            if (share := solved_share(each)) is not None
        )
        for begin in range(0, count, size)
    ]
    solved = row(figures_of(groups), "solved")
    expected = (shares[-1], shares[-2], shares[0], max(shares))
    assert (solved.last, solved.before, solved.first, solved.best) == pytest.approx(
        expected
    )
    missing = row(figures_of(groups), "missing")
    shares = [s for each in groups[-size:] if (s := missing_share(each)) is not None]
    assert missing.last == pytest.approx(fmean(shares))
    reward = row(figures_of(groups), "reward")
    assert reward.last == pytest.approx(solved.last / 2)
    level = row(figures_of(groups), "level")
    assert level.first == pytest.approx(fmean(g.recipe.level for g in groups[:size]))
    length = row(figures_of(groups), "length")
    tokens = [r.completion_tokens for each in groups[-size:] for r in each.rollouts]
    assert length.last == pytest.approx(fmean(tokens))
    assert length.best is None
    truncated = row(figures_of(groups), "truncated")
    cut = [r.finish_reason == "length" for each in groups[:size] for r in each.rollouts]
    assert truncated.first == pytest.approx(fmean(cut))
    unscored = row(figures_of(groups), "unscored")
    scored = [len(each.scored) / ATTEMPTS for each in groups[-size:]]
    assert unscored.last == pytest.approx(1 - fmean(scored))


def test_a_difference_has_welchs_interval() -> None:
    groups = varied_groups(1000)
    first = [truncated_share(each) for each in groups[:100]]
    last = [truncated_share(each) for each in groups[-100:]]
    found = row(figures_of(groups), "truncated").to_first
    assert found is not None
    assert found.value == pytest.approx(fmean(last) - fmean(first))
    parts = [variance(own) / len(own) for own in (last, first)]
    freedom = sum(parts) ** 2 / sum(part**2 / 99 for part in parts)
    spread = student_quantile(round(freedom)) * math.sqrt(sum(parts))
    assert found.low == pytest.approx(found.value - spread, abs=1e-4)
    assert found.high == pytest.approx(found.value + spread, abs=1e-4)
    assert found.covered == 1.0


def test_at_the_same_level_pairs_of_task_and_level_are_compared() -> None:
    groups = varied_groups(1000)
    pairs: list[defaultdict[tuple[str, object], list[float]]] = []
    for own in (groups[-100:], groups[:100]):
        values = defaultdict(list)
        for each in own:
            share = solved_share(each)
            if share is not None:
                values[each.task, each.recipe.level].append(share)
        pairs.append(values)
    last, first = pairs
    common = last.keys() & first.keys()
    assert common != last.keys()
    weights = {
        pair: 1 / (1 / len(last[pair]) + 1 / len(first[pair])) for pair in common
    }
    weighted = [
        weights[pair] * (fmean(last[pair]) - fmean(first[pair])) for pair in common
    ]
    found = row(figures_of(groups), "solved").at_level["to_first"]
    assert found is not None
    assert found.value == pytest.approx(sum(weighted) / sum(weights.values()))
    compared = sum(len(own[pair]) for own in pairs for pair in common)
    known = sum(len(values) for own in pairs for values in own.values())
    assert found.covered == pytest.approx(compared / known)
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.value < found.high


@pytest.mark.parametrize("count", [50, 190])
def test_windows_of_fewer_than_twenty_groups_have_no_interval(count: int) -> None:
    solved = row(figures_of(varied_groups(count)), "solved")
    assert solved.to_before is not None
    assert solved.to_before.low is None
    assert not solved.marked


def test_a_short_series_has_thirds() -> None:
    assert part_bounds(60) == [0, 20, 40, 60]
    assert len(part_bounds(99)) == 4
    assert len(part_bounds(100)) == 11
    assert figures_of([]).all_figures() == []
    [*rows] = figures_of(varied_groups(2)).all_figures()
    assert {each.to_before for each in rows} == {None}


def test_groups_are_ordered_by_number_where_all_have_one() -> None:
    groups = varied_groups(300)
    shuffled = random.Random(1).sample(groups, len(groups))
    found, expected = (row(figures_of(each), "solved") for each in (shuffled, groups))
    assert (found.last, found.before, found.first) == pytest.approx(
        (expected.last, expected.before, expected.first)
    )


def falling(at: int, count: int, low: float, until: int | None = None) -> list[float]:
    """Shares of half, but for a low one from a group on."""
    until = count if until is None else until
    return [low if at <= number < until else 0.5 for number in range(count)]


def groups_of_shares(shares: Sequence[float], **fields: int) -> list[StoredGroup]:
    rng = random.Random(7)
    return [
        group(number, share, rng=rng, **fields)
        for number, share in enumerate(shares, start=1)
    ]


def test_what_fell_beyond_noise_and_far_enough_is_marked_and_stands_first() -> None:
    figures = figures_of(groups_of_shares(falling(600, 1000, 0.25)))
    first = figures.all_figures()[0]
    assert (first.measure, first.marked) == ("solved", True)
    assert marked(figures) == {"solved", "reward"}
    assert marked(figures, size=0.4) == set()


@pytest.mark.parametrize(
    "shares",
    [
        pytest.param(falling(600, 1000, 0.9), id="better"),
        pytest.param(falling(400, 1000, 0.0, until=500), id="over"),
        pytest.param(falling(600, 1000, 0.5 - WORTH_A_LOOK / 3), id="small"),
    ],
)
def test_what_is_better_over_or_small_is_not_marked(shares: list[float]) -> None:
    assert marked(figures_of(groups_of_shares(shares))) == set()


def test_a_harder_level_is_no_reason_for_a_mark_but_the_row_stands_high() -> None:
    easy = groups_of_shares([0.8] * 500)
    hard = groups_of_shares([0.3] * 500, level=2)
    groups = easy + [
        StoredGroup(
            rollouts=each.rollouts,
            recipe=each.recipe,
            oracle="1",
            number=500 + each.number,
        )
        for each in hard
    ]
    figures = figures_of(groups)
    solved, *_ = figures.all_figures()
    assert (solved.measure, solved.marked) == ("solved", False)
    assert solved.at_level["to_first"] is None
    assert marked(figures, target=0.6) == {"solved"}
    assert marked(figures, target=0.3) == set()
    assert row(figures, "solved", target=0.6).to_target.value < -WORTH_A_LOOK


def test_of_many_tasks_the_sick_one_stands_first() -> None:
    rng = random.Random(3)
    groups = []
    for number in range(1, 2001):
        task = f"t{rng.randrange(20)}"
        is_sick = task == "t7" and number > 1200
        groups.append(group(number, 0.05 if is_sick else 0.5, rng=rng, task=task))
    rows = figures_of(groups).task_figures()
    assert (rows[0].task, rows[0].beyond, rows[0].category) == (
        "t7",
        True,
        "arithmetic",
    )
    assert rows[0].figures[0].measure in ("solved", "reward")
    assert sum(each.beyond for each in rows) <= 2
    assert {each.task for each in rows} == {f"t{number}" for number in range(20)}


VALUES = st.lists(
    st.tuples(st.integers(0, 3), st.floats(-100, 100)), min_size=1, max_size=30
)


def sums(values: Sequence[tuple[int, float]]) -> Sums:
    cells = np.array([cell for cell, _ in values], dtype=int)
    numbers = np.array([number for _, number in values])
    weights = (np.ones(len(values)), numbers, numbers**2)
    return Sums(*(np.bincount(cells, weights=each, minlength=4) for each in weights))


@given(VALUES, VALUES)
def test_a_difference_turns_around_with_its_windows(
    one: list[tuple[int, float]], other: list[tuple[int, float]]
) -> None:
    forth, back = difference(sums(one), sums(other)), difference(sums(other), sums(one))
    if forth is None or back is None:
        assert forth is back
        return
    assert back.value == pytest.approx(-forth.value, abs=1e-9)
    assert back.deviate == pytest.approx(-forth.deviate, abs=1e-6)
    assert 0 < forth.covered <= 1


@given(st.floats(-10, 10), st.floats(1, 1000))
def test_deviates_and_students_t_are_inverse(deviate: float, freedom: float) -> None:
    t = math.copysign(students_t(abs(deviate), freedom), deviate)
    assert normal_deviate(t, freedom) == pytest.approx(deviate, abs=1e-6)


@given(st.floats(-30, 30), st.floats(-30, 30), st.floats(1, 1000))
def test_correction_keeps_the_order(one: float, other: float, looks: float) -> None:
    assert (corrected(one, looks) <= corrected(other, looks)) or one > other
    assert corrected(one, looks) <= one + 1e-9
