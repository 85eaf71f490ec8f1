"""The page of the verifiers' audit keeps what no later proof has told."""

from collections.abc import Mapping
from typing import Any

from reasoning_gym_environment.proof.checks import TaskProof, judge
from reasoning_gym_environment.proof.findings import Finding
from reasoning_gym_environment.proof.ladder_proof import LevelProof
from reasoning_gym_environment.proof.proving import Proofs, installed_versions
from reasoning_gym_environment.tasks.facts import floors
from research.verifier_audit import floor_cell, page_data

EARLIER: Mapping[str, Any] = {
    "tasks": [
        {"task": "gcd", "levels": "6/6", "chance": "an old floor"},
        {"task": "lcm", "levels": "6/6"},
    ],
    "findings": [
        {"task": "gcd", "finding": "oracle", "where": "level 1, level 2", "why": "so"},
        {"task": "lcm", "finding": "oracle", "where": "default", "why": "so"},
    ],
    "not seen": ["gcd: constant", "lcm: constant"],
}


def proofs(*findings: Finding) -> Proofs:
    """A proof of lcm for which time ran out, unless it has found something."""
    default = LevelProof(task="lcm", level=None, parameters={}, findings=[*findings])
    proof = TaskProof(
        task="lcm", category="arithmetic", default=default, levels=[default]
    )
    result = judge(proof, items=20, known_findings={})
    return Proofs(versions=installed_versions(), tasks={"lcm": result})


def test_a_proof_replaces_its_own_tasks_rows() -> None:
    fault = Finding(check="solvable", kind="oracle", detail="it earns 0")
    data = page_data(proofs(fault), EARLIER)
    gcd, lcm = data["tasks"]
    assert (gcd["levels"], lcm["levels"]) == ("6/6", "1/1")
    assert [(one["task"], one["why"]) for one in data["findings"]] == [
        ("gcd", "so"),
        ("lcm", "**unexplained**"),
    ]
    assert data["not seen"] == ["gcd: constant"]
    assert "2 tasks, 4 findings, 2 of them unexplained" in data["summary"]


def test_what_was_told_stays_where_time_ran_out_but_for_the_floors() -> None:
    data = page_data(proofs(), EARLIER)
    assert data["findings"] == EARLIER["findings"]
    gcd, lcm = data["tasks"]
    assert (gcd["levels"], lcm["levels"]) == ("6/6", "6/6")
    assert gcd["chance"] == floor_cell(floors()["gcd"].chance)
