"""The schema of certificates is a schema, and refuses what is no certificate."""

import json

import pytest
from certificate_values import SCHEMA, require_valid
from jsonschema import Draft202012Validator, ValidationError

from reasoning_gym_environment.proof.certificate import as_json, of_tasks
from reasoning_gym_environment.proof.checks import CHECKS, TaskProof, judge
from reasoning_gym_environment.proof.ladder_proof import LevelProof
from reasoning_gym_environment.proof.proving import Proofs


def test_a_task_without_items_says_that_no_check_was_tried() -> None:
    default = LevelProof(task="gcd", level=None, parameters={})
    proof = TaskProof(
        task="gcd", category="arithmetic", default=default, levels=[default]
    )
    result = judge(proof, items=200, known_findings={})
    certificate = json.loads(
        as_json(of_tasks(Proofs(versions={"m": "1"}, tasks={"gcd": result})))
    )
    require_valid(certificate)
    task = certificate["tasks"]["gcd"]
    assert [one["check"] for one in task["not_checked"]] == [*CHECKS]
    assert {check["items"] for check in task["checks"].values()} == {0}


@pytest.mark.parametrize(
    "changes",
    [
        {"schema_version": 2},
        {"answer_format": "xml"},
        {"tasks": {"gcd": {"task": "gcd"}}},
        {"tasks": None},
    ],
)
def test_what_is_no_certificate_is_refused(changes: dict[str, object]) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    certificate = json.loads(as_json(of_tasks(Proofs(versions={}))))
    require_valid(certificate)
    with pytest.raises(ValidationError):
        require_valid(certificate | changes)
