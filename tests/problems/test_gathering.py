"""Results of completions become groups, each recorded once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.problems.gathering import (
    MAX_AWAITED,
    MAX_PARTIAL,
    GatheredGroup,
    GroupGathering,
)
from reasoning_gym_environment.records import Recipe


def recipe(seed: int) -> Recipe:
    return Recipe(task="gcd", seed=seed)


def add(gathering: GroupGathering, seed: int, *results: bool | None) -> list[GatheredGroup]:
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
    parts = [(seed, data.draw(results)) for seed in range(problems) for _ in range(size)]
    told = data.draw(st.permutations(parts))
    gathering = expecting(size, problems)
    groups = [group for seed, result in told for group in add(gathering, seed, result)]
    assert sorted(group.recipe.seed for group in groups) == list(range(problems))
    for group in groups:
        own = [result for seed, result in told if seed == group.recipe.seed]
        counts = size, size - own.count(None), own.count(True)
        assert (group.completions, group.scored, group.solved) == counts
    assert add(gathering, 0, True) == []


def test_the_size_is_learned_from_the_first_result() -> None:
    gathering = expecting(None)
    assert gathering.size is None
    assert [group.completions for group in add(gathering, 0, True, False, True)] == [3]
    assert (add(gathering, 1, True), gathering.size) == ([], 3)
    assert [group.solved for group in add(gathering, 1, True, False)] == [2]


def test_the_size_grows_once_most_groups_got_more() -> None:
    gathering = expecting(None)
    for seed, size in ((0, 1), (1, 1), (2, 4)):
        assert [len(add(gathering, seed, True)) for _ in range(4)] == [1, 0, 0, 0]
        assert gathering.size == size
    assert [len(add(gathering, 3, True)) for _ in range(4)] == [0, 0, 0, 1]


def test_a_result_that_arrives_twice_does_not_change_the_size() -> None:
    gathering = expecting(None, 100)
    for seed in range(100):
        assert len(add(gathering, seed, True, False)) == 1
        if seed % 3 == 2:
            assert add(gathering, seed, True, False) == []
    assert gathering.size == 2


def test_smaller_groups_are_recorded_once_several_stall() -> None:
    gathering, groups = expecting(None, 1), list[GatheredGroup]()
    assert len(add(gathering, 0, *[True] * 16)) == 1
    for seed in range(1, 101):
        gathering.assign(recipe(seed))
        groups += add(gathering, seed, *[True] * 8)
    assert (gathering.size, gathering.incomplete) == (8, 1)
    told = [(group.recipe.seed, group.completions) for group in groups]
    assert told == [(seed, 8) for seed in range(1, 101)]


def test_groups_that_never_become_whole_are_closed(caplog: pytest.LogCaptureFixture) -> None:
    for size, learned in ((4, 4), (None, 2)):
        gathering = expecting(size, MAX_PARTIAL + 2)
        if size is None:
            add(gathering, MAX_PARTIAL + 1, True, True, True)
        groups = [add(gathering, seed, True, False) for seed in range(MAX_PARTIAL + 1)]
        assert gathering.incomplete == 1
        assert gathering.size == learned
        assert [g.recipe.seed for g in groups[-1]] == [*range(0 if size else MAX_PARTIAL + 1)]
    assert caplog.messages == [
        "group_size is 4, but a problem of gcd got 2 scores while 1024 others were scored: such "
        "groups are not counted"
    ]


def test_results_of_other_problems_change_nothing() -> None:
    gathering = expecting(2, 1)
    assert add(gathering, 5, True, True) == []
    assert gathering.withdraw(recipe(0))
    assert add(gathering, 0, True, True) == []


def test_a_problem_that_is_replayed_is_a_new_group() -> None:
    gathering = expecting(1, 1)
    for _ in range(2):
        assert len(add(gathering, 0, True)) == 1
        assert not gathering.withdraw(recipe(0))
        gathering.assign(recipe(0))


def test_the_number_of_awaited_problems_is_bounded() -> None:
    gathering = expecting(1, MAX_AWAITED + 1)
    assert (add(gathering, 0, True), len(add(gathering, 1, True))) == ([], 1)
