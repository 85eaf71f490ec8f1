"""The audit of the split finds what is on both sides, and nothing on any path."""

import re

import pytest

from research.split_audit import PATHS, WITHOUT_SPLIT, Asked, Evaluated, main


def test_questions_and_copies_of_evaluation_are_counted() -> None:
    evaluated = Evaluated()
    asked = "Find the Greatest Common Divisor (GCD) of these numbers: 8, 24."
    copy = "Find the Greatest Common Divisor (GCD) of these numbers: 24, 8."
    other = "Find the Greatest Common Divisor (GCD) of these numbers: 8, 23."
    evaluated.add([Asked("gcd", asked, "8")])
    counts = evaluated.count(
        [Asked("gcd", each, None) for each in (asked, copy, other)]
    )
    assert (counts["draws"], counts["equal"], counts["copies"]) == (3, 1, 2)
    # Of another task it is another question.
    assert evaluated.count([Asked("lcm", asked, "8")])["equal"] == 0


@pytest.mark.nightly
@pytest.mark.processes
@pytest.mark.asyncio(loop_scope="session")
async def test_no_path_of_training_asks_what_evaluation_asks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert await main(["gcd"], draws=30)
    rows = re.findall(
        r"^\| (.+?) \| (\d+) \| (.+) \|$", capsys.readouterr().out, re.MULTILINE
    )
    found = {path: (int(draws), counts) for path, draws, counts in rows}
    assert found.keys() == {*PATHS, WITHOUT_SPLIT}
    for path in PATHS:
        draws, counts = found[path]
        assert draws >= 30
        assert counts == "0 | 0 | 0 | 0"
    _, counts = found[WITHOUT_SPLIT]
    assert counts != "0 | 0 | 0 | 0"
