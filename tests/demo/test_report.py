from collections import Counter
from pathlib import Path

import pytest

from reasoning_gym_environment.commands.demo import build_parser
from reasoning_gym_environment.demo.session import DemoReport, progress_line, render
from reasoning_gym_environment.errors import FixableError
from reasoning_gym_environment.problems.levels import Curriculum
from reasoning_gym_environment.rollouts.values import Means

LOG = Path("dumps/demo.log")
COUNTS = {
    "groups/collected": 12,
    "groups/accepted": 9,
    "groups/sent": 8,
    "curriculum/moves": 3,
}


def report_of(counts: dict[str, int], *, pulled: int) -> DemoReport:
    means = Means()
    for solved in (1.0, 1.0, 0.0, 0.0):
        means.add(
            {"solved": solved, "status/solved": solved, "category/games/solved": solved}
        )
        means.add({"category/games/groups/mixed": 0.5})
        means.add({"truncated": 0.0, "status/no_answer": 1.0 - solved})
    means.add(
        {"groups/mixed": 1.0, "groups/all_solved": 0.0, "groups/none_solved": 0.0}
    )
    curriculum = Curriculum({"gcd": ({},) * 5, "ab": ({},) * 5})
    curriculum.report_result("gcd", 2, solved=8, scored=8)
    return DemoReport(
        seconds=30.0,
        means=means,
        counts=Counter(counts),
        curriculum=curriculum.stats(),
        batches=2,
        pulled=pulled,
        dumps=(Path("dumps/a.jsonl"),),
    )


def test_a_run_succeeds_only_if_groups_made_the_whole_way() -> None:
    assert report_of(COUNTS, pulled=8).succeeded
    assert not report_of(COUNTS, pulled=0).succeeded
    for missing in ("groups/collected", "groups/sent"):
        assert not report_of(COUNTS | {missing: 0}, pulled=8).succeeded


def test_the_summary_says_what_happened() -> None:
    text = render(report_of(COUNTS, pulled=8), LOG)
    words = [line.split() for line in text.splitlines()]
    assert ["groups", "collected", "12"] in words
    assert ["format", "failures", "50.0%", "no", "answer,", "or", "several"] in words
    assert "Of 1 groups: 100% with signal, 0% all solved, 0% none solved" in text
    assert "Curriculum: 1 of 2 tasks moved, 3 times; mean difficulty " in text
    [moved, still] = [line for line in text.splitlines() if "from level" in line]
    assert moved.split()[0] == "gcd"
    assert still.strip().startswith("ab")
    [games] = [line.split() for line in text.splitlines() if line.startswith("  games")]
    assert games == ["games", "50.0%", "##########", "4", "50.0%"]


def test_a_run_that_never_began_can_be_shown() -> None:
    assert "- solved" in progress_line(0.0, Means(), Counter())


@pytest.mark.parametrize("options", [["--group-size", "1"], ["--seconds", "0"]])
def test_a_useless_option_is_refused(options: list[str]) -> None:
    with pytest.raises(FixableError) as raised:
        build_parser().parse(options)
    assert options[0] in str(raised.value)
