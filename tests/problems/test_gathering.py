"""Results of completions become groups, each recorded once."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.problems.gathering import (
    MAX_AWAITED,
    MAX_PARTIAL,
    MISMATCHES,
    GatheredGroup,
    GroupGathering,
)
from reasoning_gym_environment.records import Recipe


def recipe(seed: int) -> Recipe:
    return Recipe(task="gcd", seed=seed)


@contextmanager
def caught(logger: logging.Logger) -> Iterator[list[str]]:
    """Catch what is logged; pytest's own fixture doesn't go with examples of hypothesis."""
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]  # one handler
    logger.addHandler(handler)
    yield messages
    logger.removeHandler(handler)


def add(
    gathering: GroupGathering, seed: int, *results: bool | None
) -> GatheredGroup | None:
    scored = [result for result in results if result is not None]
    return gathering.report_result(
        recipe(seed), completions=len(results), scored=len(scored), solved=sum(scored)
    )


def expecting(size: int | None, problems: int = 8) -> GroupGathering:
    gathering = GroupGathering(size)
    for seed in range(problems):
        gathering.assign(recipe(seed))
    return gathering


@given(st.data())
def test_parts_in_any_order_make_each_group_once(data: st.DataObject) -> None:
    size, problems = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 6))
    results = st.sampled_from([True, False, None])
    parts = [
        (seed, data.draw(results)) for seed in range(problems) for _ in range(size)
    ]
    told = data.draw(st.permutations(parts))
    gathering = expecting(size, problems)
    results_in_turn = [add(gathering, seed, result) for seed, result in told]
    groups = [group for group in results_in_turn if group is not None]
    assert sorted(group.recipe.seed for group in groups) == list(range(problems))
    for group in groups:
        own = [result for seed, result in told if seed == group.recipe.seed]
        counts = size, size - own.count(None), own.count(True)
        assert (group.completions, group.scored, group.solved) == counts
    assert add(gathering, 0, True) is None


def test_without_a_size_problems_wait_until_they_are_withdrawn() -> None:
    gathering = expecting(None, 2)
    assert add(gathering, 0, True, True) is None
    assert len(gathering.awaited) == 2
    assert gathering.withdraw(recipe(0))
    assert list(gathering.awaited.values()) == [recipe(1)]


def test_groups_that_never_become_whole_are_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gathering = expecting(4, MAX_PARTIAL + 1)
    for seed in range(MAX_PARTIAL + 1):
        assert add(gathering, seed, True, False) is None
    assert gathering.incomplete == 1
    assert recipe(0) not in gathering.awaited.values()
    assert caplog.messages == [
        "group_size is 4, but a problem of gcd got 2 scores while 1024 others were scored: such "
        "groups are not counted"
    ]


@pytest.mark.parametrize(
    "parts", [[4], [12], [8, 4]], ids=["fewer", "more at once", "more later"]
)
def test_groups_of_another_size_are_said_once(
    parts: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    gathering = GroupGathering(8)
    for seed in range(3 * MISMATCHES):
        gathering.assign(recipe(seed))
        for part in parts:
            add(gathering, seed, *[True] * part)
        assert not caplog.messages or seed >= MISMATCHES - 1
    [message] = caplog.messages
    assert f"group_size is 8, but {MISMATCHES} problems got" in message
    assert f"such as {sum(parts)}:" in message


@given(st.data())
def test_groups_of_the_right_size_are_not_doubted(data: st.DataObject) -> None:
    size, batch = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 40))
    gathering = GroupGathering(size)
    records = logging.getLogger(GroupGathering.__module__)
    with caught(records) as messages:
        for start in range(0, 3 * batch, batch):
            seeds = range(start, start + batch)
            for seed in seeds:
                gathering.assign(recipe(seed))
            for seed in data.draw(st.permutations([*seeds] * size)):
                add(gathering, seed, True)
    assert messages == []


def test_results_of_other_problems_change_nothing() -> None:
    gathering = expecting(2, 1)
    assert add(gathering, 5, True, True) is None
    assert gathering.withdraw(recipe(0))
    assert add(gathering, 0, True, True) is None


def test_a_problem_that_is_replayed_is_a_new_group() -> None:
    gathering = expecting(1, 1)
    for _ in range(2):
        assert add(gathering, 0, True) is not None
        assert not gathering.withdraw(recipe(0))
        gathering.assign(recipe(0))


def test_the_number_of_awaited_problems_is_bounded() -> None:
    gathering = expecting(1, MAX_AWAITED + 1)
    assert add(gathering, 0, True) is None
    assert add(gathering, 1, True) is not None
