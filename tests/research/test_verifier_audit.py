"""The page of the verifiers' audit keeps what no later proof has told."""

from collections.abc import Mapping
from typing import Any

from reasoning_gym_environment.proof.checks import TaskProof, judge
from reasoning_gym_environment.proof.findings import Finding, known_findings
from reasoning_gym_environment.proof.ladder_proof import LevelProof
from reasoning_gym_environment.proof.proving import Proofs, installed_versions
from reasoning_gym_environment.tasks.facts import floors
from research.verifier_audit import floor_cell, page_data

EARLIER: Mapping[str, Any] = {
    "tasks": [
        {"task": "acre", "levels": "5/5", "chance": "an old floor"},
        {"task": "lcm", "levels": "5/6"},
    ],
    "findings": [
        {"task": "acre", "finding": "hedged answer", "where": "level 1, level 2"},
        {"task": "lcm", "finding": "oracle", "where": "default"},
    ],
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
    acre, lcm = data["tasks"]
    assert (acre["levels"], lcm["levels"]) == ("5/5", "1/1")
    reasons = {one["task"]: one["why"] for one in data["findings"]}
    assert reasons["acre"] == known_findings()["acre"]["hedged answer"]
    assert reasons["lcm"] == "**unexplained**"
    assert "2 tasks, 4 findings, 2 of them unexplained" in data["summary"]
    assert data["not seen"] == ["lcm: hedged answer, text appended"]


def test_what_was_told_stays_where_time_ran_out_but_for_the_floors() -> None:
    data = page_data(proofs(), EARLIER)
    assert [one["finding"] for one in data["findings"]] == ["hedged answer", "oracle"]
    acre, lcm = data["tasks"]
    assert (acre["levels"], lcm["levels"]) == ("5/5", "5/6")
    assert acre["chance"] == floor_cell(floors()["acre"].chance)
