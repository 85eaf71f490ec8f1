"""The known hostile answers, and the text of each for a problem."""

import json
import pickle
from pathlib import Path
from typing import Any

from reasoning_gym_environment.records import Problem

FILE = Path(__file__).parents[2] / "sandbox" / "hostile_answers.json"
CASES = json.loads(FILE.read_text(encoding="utf-8"))["cases"]


def hostile_answer(case: dict[str, Any], problem: Problem, canary: Path) -> str:
    """The case's answer to this problem; what it runs would write the canary."""
    if "answer" in case:
        return str(case["answer"]).replace("{canary}", str(canary))
    entry = pickle.loads(problem.entry)
    return str(eval(case["answer_from_entry"], {"entry": entry, "json": json}))
