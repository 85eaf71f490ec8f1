"""Every group has one outcome, whatever goes wrong and in whatever order."""

import asyncio
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.rollouts.accounting import GroupOutcome, Statistics


class LostError(Exception):
    """Inference lost a group."""


FAULTS = {
    "lost": LostError,
    "interrupted": asyncio.CancelledError,
    "broken": ZeroDivisionError,
}
IN_FLIGHT = {"cancelled": asyncio.CancelledError, "failed": RuntimeError}
FATES = [*FAULTS, *IN_FLIGHT, *GroupOutcome]
RESULT = {
    "broken": "interrupted",
    "failed": GroupOutcome.FAILED.value,
    "cancelled": GroupOutcome.CANCELLED.value,
}


async def run_group(
    statistics: Statistics, fate: str | GroupOutcome, pauses: tuple[int, int, int]
) -> None:
    """A group's life: its pauses are where the groups of others come in between."""
    with statistics.generating(lost_on=LostError):
        await rest(pauses[0])
        if error := FAULTS.get(fate):
            raise error
    with statistics.delivering():
        statistics.record_collected()
        await rest(pauses[1])
        if error := IN_FLIGHT.get(fate):
            raise error
    with statistics.delivering():
        await rest(pauses[2])
        statistics.record(GroupOutcome(fate))


async def rest(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


pauses = st.tuples(*[st.integers(0, 4)] * 3)


@given(
    st.lists(st.tuples(st.sampled_from(FATES), pauses), max_size=40),
    st.lists(st.tuples(st.integers(0, 39), st.integers(0, 12)), max_size=10),
)
def test_every_group_has_one_outcome_whatever_goes_wrong(
    groups: list[tuple[str, tuple[int, int, int]]], killings: list[tuple[int, int]]
) -> None:
    """`killings`: which groups' workers are cancelled, and after how many turns of the loop."""
    statistics = Statistics()
    counts = statistics.counts

    async def run() -> None:
        tasks = [
            asyncio.create_task(run_group(statistics, fate, pauses))
            for fate, pauses in groups
        ]
        await rest(1)  # a worker that never began is no group
        for victim, turns in sorted(killings, key=lambda killing: killing[1]):
            await rest(turns)
            if victim < len(tasks):
                tasks[victim].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())
    assert not any(statistics.unaccounted().values())
    assert counts["groups/started"] == len(groups)
    outcomes = [outcome.value for outcome in GroupOutcome]
    assert counts["groups/collected"] == sum(
        counts[f"groups/{outcome}"] for outcome in outcomes
    )
    if not killings:
        named = Counter(
            RESULT.get(fate, getattr(fate, "value", fate)) for fate, _ in groups
        )
        for name in ("lost", "interrupted", *outcomes):
            assert counts[f"groups/{name}"] == named[name]


def test_groups_without_an_outcome_are_unaccounted() -> None:
    statistics = Statistics()
    with statistics.generating(lost_on=LostError):
        assert statistics.unaccounted() == {
            "groups/generating": 1,
            "groups/in_flight": 0,
        }
        statistics.record_collected()
    assert statistics.unaccounted() == {"groups/generating": 0, "groups/in_flight": 1}
    statistics.record(GroupOutcome.SENT)
    assert statistics.unaccounted() == {"groups/generating": 0, "groups/in_flight": 0}


def test_the_accounting_is_one_line() -> None:
    statistics = Statistics()
    with suppress(LostError), statistics.generating(lost_on=LostError):
        raise LostError
    with pytest.raises(KeyError), statistics.generating(lost_on=LostError):
        raise KeyError
    sent = GroupOutcome.SENT
    for outcome in (sent, sent, GroupOutcome.REFUSED, GroupOutcome.FAILED):
        with statistics.generating(lost_on=LostError):
            statistics.record_collected()
        statistics.record(outcome)
    assert statistics.accounting() == (
        "6 started = 4 collected + 1 lost + 1 interrupted; "
        "4 collected = 2 sent + 1 refused + 1 send_failures"
    )
