"""`prove` finds the faults of careless_tasks.py, and none in the tasks of tempting_tasks.py."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parent
FAULTS = {
    "hint_at_end": ("not_payable", "'last number' solves 100%"),
    "hint_at_start": ("not_payable", "'first number' solves 100%"),
    "hint_in_the_middle": ("not_payable", "\"behind ' = '\" solves 100%"),
    "fewer_terms_higher_up": ("levels", "level 0 may be the hardest: questions have"),
    "smaller_numbers_higher_up": (
        "levels",
        "level 0 may be the hardest: questions have",
    ),
    "endless_answer": ("levels", "answers of 600"),
    "slow_pattern": ("bounded", "repetitive text (timeout)"),
    "decomposed_label": ("solvable", "has unusual characters (COMBINING"),
    "float_noise": ("solvable", "has float noise: without, it is wrong"),
    "spaced_label": ("solvable", "an item's own answer is wrong 0.0"),
    "tagged_label": ("solvable", "an item's own answer is several_answers"),
    "rounded_label": ("solvable", "an item's own answer is wrong 0.0"),
    "contained_label": ("not_payable", "solves 100%"),
    "not_a_number_passes": ("not_payable", "'nan' solves 100%"),
    "nothing_passes": ("not_payable", "'without its end' solves 100%"),
    "mostly_yes": ("levels", "'yes' answers"),
    "hidden_modulus": ("solvable", "the same question has the answers"),
    "of_the_clock": ("reproducible", "the question differs from one time to the next"),
    "level_forgotten": ("levels", "nearly the questions of level 0"),
    "raises_at_the_top": ("levels", "ZeroDivisionError"),
    "wrong_now_and_then": ("solvable", "no verifier: labels not checked"),
    "wrong_beside_a_solver": ("solvable", "solve has another answer than the label"),
    "odd_space_in_label": ("solvable", "has unusual characters (NO-BREAK SPACE)"),
    "five_points": ("solvable", "the verifier must return a score in [0, 1], got 5"),
    "closing_tag_in_label": ("solvable", "an item's own answer is several_answers"),
    "ten_questions": ("levels", "only 10 distinct questions of 200"),
    "half_for_anything": ("not_payable", "half credit on 100%, mean score 0.50"),
}
"""By task, the check that names its fault, and in which words."""

WARNINGS = {
    "fewer_terms_higher_up": "levels",
    "small_first_level": "disjoint",
    "fewer_clues": "levels",
}
"""What is a warning: shorter questions may be harder, and few may be enough at one level."""

WAIVED = {"ring_area": "not_payable"}
WITHOUT_SECOND_ANSWER = ("small_first_level",)
SOUND_TOO = ("raises_on_words",)  # what raises is a wrong answer
QUICK = ("hint_at_end", "tagged_label", "slow_pattern", "wrong_beside_a_solver")

pytestmark = pytest.mark.processes


def prove(folder: Path, module: str, *options: str) -> dict[str, dict[str, Any]]:
    """The results of a module's tasks, by name, from the command."""
    command = [
        *(sys.executable, "-m", "reasoning_gym_environment", "prove", *options),
        *("--task-modules", str(FOLDER / module), "-o", str(folder / "proof.json")),
    ]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    # Texts that are tried on purpose are no errors of the author's verifier.
    assert "verifier raised" not in done.stderr
    tasks: dict[str, dict[str, Any]] = json.loads(done.stdout)["tasks"]
    return tasks


def require_its_fault(name: str, result: dict[str, Any]) -> None:
    check, words = FAULTS[name]
    found = [one for one in result["findings"] if one["check"] == check]
    assert any(words in one["detail"] for one in found), (name, found)
    verdict = result["checks"][check]["verdict"]
    if name == "wrong_now_and_then":
        assert verdict == "not_checked"
    elif name in WARNINGS:
        assert (check, verdict) == (WARNINGS[name], "warning")
    else:
        assert (verdict, result["verdict"]) == ("failed", "failed")


def require_sound(name: str, result: dict[str, Any]) -> None:
    verdicts = {check: one["verdict"] for check, one in result["checks"].items()}
    expected = dict.fromkeys(verdicts, "passed")
    if name in WARNINGS:
        expected[WARNINGS[name]] = "warning"
    if name in WAIVED:
        expected[WAIVED[name]] = "waived"
    if name in WITHOUT_SECOND_ANSWER:
        expected["solvable"] = "not_checked"
    assert verdicts == expected, (name, result["findings"])


@pytest.mark.nightly
def test_a_few_careless_tasks_are_refused_for_their_faults(tmp_path: Path) -> None:
    proved = prove(
        tmp_path, "careless_tasks.py", *QUICK, "--items", "20", "--seconds", "900"
    )
    assert proved.keys() == {*QUICK}
    for name, result in proved.items():
        require_its_fault(name, result)


@pytest.mark.slow
def test_every_careless_task_is_refused_for_its_fault(tmp_path: Path) -> None:
    proved = prove(tmp_path, "careless_tasks.py", "--all", "--seconds", "900")
    assert proved.keys() == {*FAULTS, *SOUND_TOO}
    for name, result in proved.items():
        if name in SOUND_TOO:
            require_sound(name, result)
        else:
            require_its_fault(name, result)


@pytest.mark.slow
def test_every_sound_task_passes(tmp_path: Path) -> None:
    proved = prove(tmp_path, "tempting_tasks.py", "--all", "--seconds", "900")
    assert len(proved) == 12
    for name, result in proved.items():
        require_sound(name, result)
