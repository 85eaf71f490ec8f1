"""Every group has one outcome, whatever goes wrong and in whatever order."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.rollouts.accounting import (
    COLLECTED,
    NOT_COLLECTED,
    Group,
    GroupOutcome,
    Statistics,
)

GROUPS = 8
COLLECT = "collect"
STEPS = st.tuples(st.integers(0, GROUPS - 1), st.sampled_from([COLLECT, *GroupOutcome]))
"""A group's number, and what it is told."""


@given(st.lists(STEPS, max_size=60))
def test_every_group_has_one_outcome_whatever_it_is_told_and_when(
    steps: list[tuple[int, str | GroupOutcome]],
) -> None:
    statistics = Statistics()
    counts = statistics.counts
    groups = [statistics.begin_group() for _ in range(GROUPS)]
    collected: set[int] = set()
    outcomes: dict[int, GroupOutcome] = {}
    for number, step in steps:
        has_ended = number in outcomes
        if isinstance(step, GroupOutcome):
            fits = (number in collected) == (step in COLLECTED)
        else:
            fits = number not in collected
        if has_ended or not fits:
            before = dict(counts)
            with pytest.raises(RuntimeError):
                tell(groups[number], step)
            assert dict(counts) == before
            continue
        tell(groups[number], step)
        if isinstance(step, GroupOutcome):
            outcomes[number] = step
        else:
            collected.add(number)
        assert statistics.unaccounted() == {
            "groups/generating": GROUPS - len(collected | outcomes.keys()),
            "groups/in_flight": len(collected - outcomes.keys()),
        }
    assert [group.outcome for group in groups] == [
        outcomes.get(number) for number in range(GROUPS)
    ]
    assert counts["groups/started"] == GROUPS
    assert counts["groups/collected"] == len(collected)
    ended = Counter(outcomes.values())
    for outcome in GroupOutcome:
        assert counts[f"groups/{outcome.value}"] == ended[outcome]


def tell(group: Group, step: str | GroupOutcome) -> None:
    if isinstance(step, GroupOutcome):
        group.end(step)
    else:
        group.mark_collected()


def test_outcomes_are_counted_by_name() -> None:
    statistics = Statistics()
    for outcome in (GroupOutcome.SENT, GroupOutcome.SENT, GroupOutcome.FILTERED):
        group = statistics.begin_group()
        group.mark_collected()
        group.end(outcome)
    statistics.begin_group().end(GroupOutcome.LOST)
    assert statistics.outcomes() == {"lost": 1, "sent": 2, "filtered": 1}


def test_an_outcome_belongs_to_one_stage() -> None:
    assert {*COLLECTED, *NOT_COLLECTED} == {*GroupOutcome}
    assert not {*COLLECTED} & {*NOT_COLLECTED}


def test_a_second_outcome_is_refused_with_both_names() -> None:
    group = Statistics().begin_group()
    group.mark_collected()
    group.end(GroupOutcome.SENT)
    with pytest.raises(RuntimeError, match=r"sent.* lost"):
        group.end(GroupOutcome.LOST)
    assert group.outcome is GroupOutcome.SENT


def test_groups_without_an_outcome_are_unaccounted() -> None:
    statistics = Statistics()
    group = statistics.begin_group()
    assert statistics.unaccounted() == {"groups/generating": 1, "groups/in_flight": 0}
    group.mark_collected()
    assert statistics.unaccounted() == {"groups/generating": 0, "groups/in_flight": 1}
    group.end(GroupOutcome.SENT)
    assert statistics.unaccounted() == {"groups/generating": 0, "groups/in_flight": 0}


def test_the_accounting_is_one_line() -> None:
    statistics = Statistics()
    for outcome in (GroupOutcome.LOST, GroupOutcome.INTERRUPTED):
        statistics.begin_group().end(outcome)
    sent = GroupOutcome.SENT
    for outcome in (sent, sent, GroupOutcome.REFUSED, GroupOutcome.FAILED):
        group = statistics.begin_group()
        group.mark_collected()
        group.end(outcome)
    assert statistics.accounting() == (
        "6 started = 4 collected + 1 lost + 1 interrupted; "
        "4 collected = 2 sent + 1 refused + 1 send_failures"
    )
