"""Splits keep questions whole; duplicates are dropped and lone surrogates replaced."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.storage.export import Item, is_test, prepare, repaired


def items(*asked: str) -> list[Item]:
    """Rows that name what was asked and are all different."""
    return [
        Item(question_key=what, identity=str(number), row={"asked": what})
        for number, what in enumerate(asked)
    ]


def asked_in(rows: list[dict[str, Any]]) -> set[str]:
    return {row["asked"] for row in rows}


@given(st.lists(st.text(max_size=3), max_size=40), st.floats(0.01, 0.99))
def test_no_item_is_in_both_splits_and_none_is_lost(
    asked: list[str], share: float
) -> None:
    splits = prepare(items(*asked), share)[0]
    assert not asked_in(splits["train"]) & asked_in(splits["test"])
    assert sorted(row["asked"] for rows in splits.values() for row in rows) == sorted(
        asked
    )


def test_an_item_is_on_the_same_side_in_every_export() -> None:
    few, many = items("a", "b", "c", "d"), items(*(chr(97 + i) for i in range(20)))
    test, larger = (asked_in(prepare(rows, 0.5)[0]["test"]) for rows in (few, many))
    assert test == larger & {"a", "b", "c", "d"}
    assert test


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_the_test_split_has_about_its_share(share: float) -> None:
    found = sum(is_test(str(number), share) for number in range(10_000)) / 10_000
    assert found == pytest.approx(share, abs=0.02)


def test_a_test_split_exists_only_on_request() -> None:
    assert prepare(items("a"), 0.0)[0] == {"train": [{"asked": "a"}]}


def test_of_duplicates_the_first_is_kept() -> None:
    twins = [
        Item(question_key="a", identity="same", row={"number": number})
        for number in range(3)
    ]
    assert prepare(twins, 0.0) == ({"train": [{"number": 0}]}, 2, 0)


def test_halves_of_surrogate_pairs_are_replaced_and_counted() -> None:
    row = {
        "messages": [{"role": "user", "content": "a\ud800b\udfff"}],
        "score": 1.0,
        "x": None,
    }
    whole = {
        "messages": [{"role": "user", "content": "a\ufffdb\ufffd"}],
        "score": 1.0,
        "x": None,
    }
    assert repaired(row) == (whole, 2)
    assert prepare([Item(question_key="a", identity="i", row=row)], 0.5)[2] == 2


@given(st.text())
def test_whole_unicode_is_left_alone(text: str) -> None:
    assert repaired({"text": text}) == ({"text": text}, 0)
