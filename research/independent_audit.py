"""What falsepass, an independent auditor of rewards, says of ours: `make falsepass`.

It reads `rows` and `reward` from this file as a trainer would, and scores completions that are
known to be right or wrong. Then every result that it doesn't expect is explained, or named.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from reasoning_gym_environment import ReasoningGym
from reasoning_gym_environment.integrations.shared import (
    evaluation_problems,
    problem_row,
)
from reasoning_gym_environment.proof.findings import Kind, known_findings

EXPECTED = {
    "P14 format_mentions": "by the rule of one answer, a tag that is named beside the answer "
    "begins another one: such a reply has several answers",
    "P2 equivalent_forms crlf_line_endings": "lines end in a line feed alone",
    "P2 equivalent_forms answer_case_swapped": "letter case is part of the answer",
    "P2 equivalent_forms trailing_period_inside_slot": "a sentence has one full stop",
}
"""Known-good completions that aren't solved, by probe and variant, and why."""


@cache
def gym() -> ReasoningGym:
    return ReasoningGym()


def rows() -> list[dict[str, Any]]:
    """Return a held-out problem of each task with an answer of its own."""
    problems = evaluation_problems(gym(), per_task=1)
    return [
        {**problem_row(p, "direct"), "answer": p.oracle} for p in problems if p.oracle
    ]


def reward(
    completions: Sequence[Sequence[Mapping[str, Any]]],
    recipe: Sequence[str],
    **_: object,
) -> list[float]:
    """Return 1 for each completion that solves its problem, else 0."""
    texts = [completion[-1]["content"] or "" for completion in completions]
    scores = gym().score_many(zip(map(json.loads, recipe), texts, strict=True))
    return [float(score.solved) for score in scores]


def explanation(row: Mapping[str, Any], task: str) -> str:
    """Return why this environment judges a completion otherwise; empty if nobody knows."""
    name = f"{row['probe']} {row['name']}"
    if row["expected"] == "full":
        return EXPECTED.get(name) or EXPECTED.get(f"{name} {row['variant']}", "")
    if row["variant"] in ("denied", "denied_latex", "not_answer"):
        return ""
    known = known_findings().get(task, {})
    beside = (Kind.LISTING.value, Kind.APPENDED.value)
    return next((known[kind] for kind in beside if kind in known), "")


def main(folder: Path) -> int:
    """Audit the reward; return 1 if a result has no explanation."""
    folder.mkdir(parents=True, exist_ok=True)
    here = str(Path(__file__).resolve())
    dataset = (
        "--dataset",
        "call:rows",
        "--answer-column",
        "answer",
        "--func",
        "reward",
    )
    for command in (
        ("falsepass.cli", "init", here, *dataset, "--force"),
        ("falsepass.runner", "audits/independent-audit", "-n", "200", "--jobs", "1"),
    ):
        subprocess.run([sys.executable, "-m", *command], cwd=folder, check=True)
    audit = json.loads(
        (folder / "audits/independent-audit/probe-results.json").read_text()
    )
    asked = audit["meta"]["loader"]["rows"]
    whys: Counter[tuple[str, str]] = Counter()
    for row in audit["results"]:
        if not row["passed"]:
            task = asked.get(row["example"], {}).get("task", "")
            why = (
                explanation(row, task) or f"UNEXPLAINED in {task}: {row['completion']}"
            )
            whys[row["probe"], why] += 1
    for (probe, why), count in sorted(whys.items()):
        print(f"{probe}: {count} of {len(audit['results'])} completions: {why}")
    return int(any(why.startswith("UNEXPLAINED") for _, why in whys))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
