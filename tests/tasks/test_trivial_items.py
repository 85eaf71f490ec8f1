"""No level asks items that a copy, a letter or any candidate solves."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from reasoning_gym_environment.records import Recipe
from reasoning_gym_environment.tasks.datasets import Datasets
from reasoning_gym_environment.tasks.facts import stored_snapshot
from reasoning_gym_environment.tasks.item_checks import item_fault

# The library leaves files open.
pytestmark = pytest.mark.filterwarnings("ignore")

ITEMS = 40


def asked(task: str, *levels: int) -> Iterator[Mapping[str, Any]]:
    """Yield the sound ones of the first items of some levels, or of all."""
    ladder = stored_snapshot()["ladders"][task]["levels"]
    datasets = Datasets()
    for level in levels or range(len(ladder)):
        for seed in range(ITEMS):
            entry = datasets.entry(
                Recipe(task=task, seed=seed, level=level, parameters=ladder[level])
            )
            if item_fault(task, entry) is None:
                yield entry


def test_a_text_without_a_push_solves_no_board() -> None:
    score = Datasets().get("sokoban", {}).score_answer
    for entry in asked("sokoban", 0, 1):
        assert score("x", entry) == 0.0, entry["question"]


def test_the_string_of_the_question_is_no_answer() -> None:
    entries = list(asked("string_insertion", 0, 1, 2))
    copied = sum(entry["answer"] == entry["metadata"]["string"] for entry in entries)
    assert copied <= 0.05 * len(entries)


def test_one_candidate_is_the_largest() -> None:
    shares = []
    for entry in asked("number_format", 3, 4, 5):
        listed = entry["question"].partition(": ")[2]
        candidates = [
            float(number.replace(",", ""))
            for number in re.findall(r"\d[\d,]*\.\d+(?:e[+-]\d+)?", listed)
        ]
        right = Counter(candidates)[float(entry["answer"].replace(",", ""))]
        shares.append(right / len(candidates))
    assert sum(shares) / len(shares) < 0.12


def test_the_shift_of_a_cipher_grows_with_the_level() -> None:
    def shift(level: int) -> float:
        rotations = [
            entry["metadata"]["rotation"] for entry in asked("caesar_cipher", level)
        ]
        return sum(min(each, 26 - each) for each in rotations) / len(rotations)

    shifts = [*map(shift, range(6))]
    assert shifts == sorted(shifts)


def test_no_number_of_a_question_has_an_exponent() -> None:
    for entry in asked("complex_arithmetic"):
        assert not re.search(r"\de\+", entry["question"] + entry["answer"])


@pytest.mark.nightly
def test_the_questions_of_rearc_get_longer() -> None:
    ladder = stored_snapshot()["ladders"]["rearc"]["levels"]
    lengths = []
    for level in (0, len(ladder) - 1):
        entries = [*asked("rearc", level)][:8]
        lengths.append(sum(len(entry["question"]) for entry in entries) / len(entries))
    assert lengths[1] > 1.5 * lengths[0]
