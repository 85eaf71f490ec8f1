"""The books of a run balance, whatever becomes of its groups and in whatever order."""

import asyncio
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.rollouts.books import Books, End


class LostError(Exception):
    """Inference lost a group."""


FAULTS = {"lost": LostError, "interrupted": asyncio.CancelledError, "broken": ZeroDivisionError}
ON_THE_WAY = {"cancelled": asyncio.CancelledError, "failed": RuntimeError}
FATES = [*FAULTS, *ON_THE_WAY, *End]
RESULT = {"broken": "interrupted", "failed": End.FAILED.value, "cancelled": End.CANCELLED.value}


async def live(books: Books, fate: str | End, pauses: tuple[int, int, int]) -> None:
    """A group's life: its pauses are where the lives of others come in between."""
    with books.asking(lost_by=LostError):
        await rest(pauses[0])
        if error := FAULTS.get(fate):
            raise error
    with books.settling():
        books.collect()
        await rest(pauses[1])
        if error := ON_THE_WAY.get(fate):
            raise error
    with books.settling():
        await rest(pauses[2])
        books.end(End(fate))


async def rest(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


pauses = st.tuples(*[st.integers(0, 4)] * 3)


@given(
    st.lists(st.tuples(st.sampled_from(FATES), pauses), max_size=40),
    st.lists(st.tuples(st.integers(0, 39), st.integers(0, 12)), max_size=10),
)
def test_every_group_has_one_end_whatever_goes_wrong(
    lives: list[tuple[str, tuple[int, int, int]]], killings: list[tuple[int, int]]
) -> None:
    """`killings`: which groups' workers are cancelled, and after how many turns of the loop."""
    counts: Counter[str] = Counter()
    books = Books(counts)

    async def run() -> None:
        tasks = [asyncio.create_task(live(books, fate, pauses)) for fate, pauses in lives]
        await rest(1)  # a worker that never began is no group
        for victim, turns in sorted(killings, key=lambda killing: killing[1]):
            await rest(turns)
            if victim < len(tasks):
                tasks[victim].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())
    assert not any(books.owed().values())
    assert counts["groups/begun"] == len(lives)
    ends = [end.value for end in End]
    assert counts["groups/collected"] == sum(counts[f"groups/{end}"] for end in ends)
    if not killings:
        named = Counter(RESULT.get(fate, getattr(fate, "value", fate)) for fate, _ in lives)
        for name in ("lost", "interrupted", *ends):
            assert counts[f"groups/{name}"] == named[name]


def test_what_has_no_end_yet_is_owed() -> None:
    books = Books(Counter())
    with books.asking(lost_by=LostError):
        assert books.owed() == {"groups/asked": 1, "groups/on_the_way": 0}
        books.collect()
    assert books.owed() == {"groups/asked": 0, "groups/on_the_way": 1}
    books.end(End.SENT)
    assert books.owed() == {"groups/asked": 0, "groups/on_the_way": 0}


def test_the_books_are_one_line() -> None:
    books = Books(Counter())
    with suppress(LostError), books.asking(lost_by=LostError):
        raise LostError
    with pytest.raises(KeyError), books.asking(lost_by=LostError):
        raise KeyError
    for end in (End.SENT, End.SENT, End.REFUSED, End.FAILED):
        with books.asking(lost_by=LostError):
            books.collect()
        books.end(end)
    assert str(books) == (
        "6 begun = 4 collected + 1 lost + 1 interrupted; 4 collected = 2 sent + 0 written "
        "+ 1 refused + 1 send_failures + 0 cancelled + 0 unscored + 0 filtered"
    )
