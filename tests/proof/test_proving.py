"""Proofs in two real pools, of the library's tasks and of a module, and their file."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from textwrap import dedent

import msgspec
import pytest
from certificate_values import require_valid

from reasoning_gym_environment.cli import main
from reasoning_gym_environment.commands.prove import as_text
from reasoning_gym_environment.errors import FixableError
from reasoning_gym_environment.proof.certificate import as_json, of_tasks
from reasoning_gym_environment.proof.checks import TaskProof, judge
from reasoning_gym_environment.proof.clock import ProcessorClock
from reasoning_gym_environment.proof.ladder_proof import LevelProof, level_proofs
from reasoning_gym_environment.proof.proving import (
    Proofs,
    chosen_tasks,
    installed_versions,
    prove_task,
    prove_tasks,
)
from reasoning_gym_environment.records import Recipe
from reasoning_gym_environment.sandbox.pool import PoolSettings, TaskPool
from reasoning_gym_environment.tasks.catalogue import Discovery
from reasoning_gym_environment.tasks.facts import known_categories
from reasoning_gym_environment.tasks.ladders import TaskLadder
from reasoning_gym_environment.tasks.modules import Proof, find_modules, read_proof
from research.verifier_audit import as_markdown, page_data

PAYER = "own_payer"
REFUSES_LEVELS = "survo"
SOUND = "bitwise_arithmetic"


@pytest.mark.asyncio(loop_scope="session")
async def test_two_pools_prove_a_sound_task_and_find_levels_that_the_library_refuses(
    pool: TaskPool,
) -> None:
    ladders = await pool.ladders()
    levels = ({"min_num": 1}, {"max_empty": 50}, {"no_such_name": 1})
    ladders[REFUSES_LEVELS] = TaskLadder(levels=levels, origin="own")
    results = {}
    async with TaskPool(PoolSettings(processes=1, hash_seed=1), Counter()) as other:
        for task in (REFUSES_LEVELS, SOUND):
            default = LevelProof(task=task, level=None, parameters={})
            own = level_proofs(task, ladders[task])
            proof = TaskProof(
                task=task, category="category", default=default, levels=own
            )
            await prove_task(pool, other, proof, 20, 120.0, ProcessorClock())
            results[task] = judge(proof, items=20, known_findings={})
        recipe = Recipe(task="advanced_geometry", seed=2)
        ours, theirs = await pool.inspect(recipe), await other.inspect(recipe)
    assert ours.content == theirs.content
    assert "question" in ours.content
    assert "difficulty" in (await pool.inspect(Recipe(task="gcd", seed=2))).json_changes

    sound, refused = results[SOUND], results[REFUSES_LEVELS]
    verdicts = Counter(check.verdict for check in sound.checks.values())
    assert (verdicts, sound.findings) == ({"passed": 5, "not_tried": 2}, [])
    assert "fewer than 200 draws: 0 (20)" in sound.checks["levels"].reason
    assert (sound.oracle, sound.stateless) == (1.0, True)
    assert all(level.questions == level.items for level in sound.levels)
    assert 0.0 < sound.median_seconds <= sound.worst_seconds
    assert {f.level for f in refused.findings if f.kind == "generation"} == {1, 2}
    assert refused.checks["levels"].verdict == "failed"

    proofs = Proofs(versions=installed_versions(), tasks=results)
    for page in (as_text(proofs), json.dumps(page_data(proofs))):
        assert all(task in page for task in results)
    assert "**unexplained**" in as_markdown(page_data(proofs))
    certificate = json.loads(as_json(of_tasks(proofs)))
    require_valid(certificate)
    certified = certificate["tasks"][SOUND]
    # A tenth of the default items is drawn of each level.
    made_again = 20 + 2 * len(ladders[SOUND].levels)
    assert certified["checks"]["reproducible"]["items"] == made_again
    assert {one["check"] for one in certified["not_checked"]} == {
        "levels",
        "not_payable",
    }
    # A check that fails says as well what it has not tried.
    refused_json = certificate["tasks"][REFUSES_LEVELS]
    assert refused_json["verdict"] == "failed"
    assert "levels" in {one["check"] for one in refused_json["not_checked"]}


MODULE = """
    from dataclasses import dataclass
    from random import Random
    from reasoning_gym.dataset import ProceduralDataset
    from reasoning_gym.factory import register_dataset

    @dataclass
    class Configuration:
        seed: int = 0
        size: int = 500

    class Sums(ProceduralDataset):
        def __init__(self, config):
            super().__init__(config, config.seed, config.size)

        def __getitem__(self, index):
            a = Random(self.seed + index).randrange(10**6)
            return {"question": f"{a}+{a}", "answer": str(2 * a), "metadata": {"pair": (a, a)}}

        def score_answer(self, answer, entry):
            return float(answer == entry["answer"])

    register_dataset("own_sums", Sums, Configuration)
"""


@pytest.mark.nightly
@pytest.mark.processes
def test_the_command_fails_on_a_verifier_that_pays_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module, file = tmp_path / "own_payer_module.py", tmp_path / "proofs.json"
    payer = MODULE.replace('float(answer == entry["answer"])', "1.0").replace(
        "own_sums", PAYER
    )
    module.write_text(dedent(payer))
    options = ["--task-modules", str(module), "--items", "14", "-o", str(file)]
    assert main(["prove", PAYER, *options]) == 1
    assert "not payable   failed" in capsys.readouterr().out
    stored = msgspec.json.decode(file.read_bytes(), type=Proofs)
    result = stored.tasks[PAYER]
    kinds = {finding.kind for finding in result.findings}
    assert {"junk", "constant", "question", "hostile text"} <= kinds
    assert result.chance is not None
    assert result.chance.solved == 1.0
    assert PAYER in as_markdown(page_data(stored))


@pytest.mark.nightly
@pytest.mark.processes
def test_a_module_is_proved_in_a_file_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = tmp_path / "own_sums_module.py"
    module.write_text(dedent(MODULE))
    options = ["own_sums", "--task-modules", str(module)]
    file = tmp_path / "own_sums_module.proof.json"
    assert main(["prove", *options, "--items", "14", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)["tasks"]["own_sums"]
    assert (result["verdict"], result["levels"][1]["items"]) == ("not_tried", 14)
    assert "JSON would change an entry: pair" in result["checks"]["solvable"]["reason"]
    stored = json.loads(file.read_text())
    assert stored["unfinished"]["own_sums"]["levels"][0]["tried"] == 14
    [source] = find_modules([str(module)])
    digest = stored["versions"]["own_sums_module"]
    proof = read_proof(source, digest)
    assert (proof.proved, proof.stateless) == (set(), {"own_sums"})
    assert proof.chance == {"own_sums": result["chance"]["solved"]}
    assert read_proof(source, "sha256:another") == Proof()
    assert main(["prove", *options, "--items", "14", "--strict"]) == 1


def test_a_task_that_does_not_exist_is_named() -> None:
    discovery = Discovery(categories=known_categories(), failures={}, warning=None)
    with pytest.raises(FixableError, match="did you mean gcd"):
        chosen_tasks(discovery, ["gdc"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--items", "0", "gcd"], "≥ 1, got '0'"),
        ([], "name the tasks to prove"),
        (["gcd", "--all"], "name the tasks to prove"),
    ],
)
def test_what_cannot_be_proved_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prove", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_proof_goes_on_from_its_file_unless_its_version_or_format_is_another(
    tmp_path: Path,
) -> None:
    file = tmp_path / "proof.json"
    default = LevelProof(
        task="gcd", level=None, parameters={}, tried=2, questions={0: "a", 1: "b"}
    )
    proof = TaskProof(
        task="gcd", category="arithmetic", default=default, levels=[default]
    )
    result = judge(proof, items=20, known_findings={})
    written = Proofs(
        versions={"m": "1"}, tasks={"gcd": result}, unfinished={"gcd": proof}
    )
    written.write(file)
    same, changed = Proofs(versions={"m": "1"}), Proofs(versions={"m": "2"})
    boxed = Proofs(versions={"m": "1"}, answer_format="boxed")
    for proofs in (same, changed, boxed):
        proofs.read(file)
    assert (same, changed.tasks, changed.unfinished) == (written, {}, {})
    assert (boxed.tasks, boxed.unfinished) == ({}, {})


@pytest.mark.processes
@pytest.mark.asyncio(loop_scope="session")
async def test_an_interrupted_proof_keeps_what_was_stored_of_tasks_in_flight(
    tmp_path: Path,
) -> None:
    file = tmp_path / "proof.json"
    written = Proofs(versions={})
    for task, tried in (("gcd", 2), ("lcm", 10**6)):
        one = LevelProof(task=task, level=None, parameters={}, tried=tried)
        written.unfinished[task] = TaskProof(
            task=task, category="", default=one, levels=[one]
        )
    written.write(file)
    settings = PoolSettings(processes=2)
    proving = asyncio.create_task(
        prove_tasks(
            ["gcd", "lcm"],
            settings,
            items=10**6,
            seconds=600.0,
            known_findings={},
            files=[file],
        )
    )
    stored = Proofs(versions=installed_versions())
    while not stored.tasks and not proving.done():
        await asyncio.sleep(0.1)
        stored.read(file)
    proving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await proving
    again = Proofs(versions=installed_versions())
    again.read(file)
    assert (again.tasks.keys(), again.unfinished["gcd"]) == (
        {"lcm"},
        written.unfinished["gcd"],
    )


def test_a_file_that_is_no_proof_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "proof.json"
    file.write_text('{"tasks": []}')
    with pytest.raises(ValueError, match="is not a file of proofs: "):
        Proofs(versions={}).read(file)
