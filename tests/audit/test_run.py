"""The audit through the real pool: findings, failures, pages."""

import json
from collections import Counter
from pathlib import Path

import pytest
import pytest_asyncio

from reasoning_gym_environment.audit._strategies import strategies
from reasoning_gym_environment.audit.findings import TaskAudit, known_findings
from reasoning_gym_environment.audit.ladder_proof import (
    LevelProof,
    prove_level,
    verify_oracles,
)
from reasoning_gym_environment.audit.pages import as_html, as_json, as_text, page_data
from reasoning_gym_environment.audit.run import (
    Audit,
    audit_task,
    find_floors,
    floor,
)
from reasoning_gym_environment.cli import main
from reasoning_gym_environment.commands.audit import main as run_audit
from reasoning_gym_environment.problems.sampler import evaluation_recipes
from reasoning_gym_environment.problems.stream import generate_faultless
from reasoning_gym_environment.records import Recipe
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.tasks.facts import Floor, floors, solved_score

SESSION = pytest.mark.asyncio(loop_scope="session")

PAYS_ANYTHING = "game_of_life_halting"
REFUSES_LEVELS = "survo"
SOUND = "bitwise_arithmetic"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def audits(pool: TaskPool) -> dict[str, TaskAudit]:
    """A small audit to which nothing is known, of one task with levels that can't be built."""
    ladders = {task: ladder.levels for task, ladder in (await pool.ladders()).items()}
    ladders[REFUSES_LEVELS] = ({"min_num": 1}, {"max_empty": 50}, {"no_such_name": 1})
    return {
        task: await audit_task(pool, task, "category", ladders[task], items=4, known={})
        for task in (PAYS_ANYTHING, REFUSES_LEVELS, SOUND)
    }


@SESSION
async def test_a_sound_task_has_no_findings(audits: dict[str, TaskAudit]) -> None:
    sound = audits[SOUND]
    assert sound.oracle == 1.0
    assert not sound.findings
    assert sound.items == 8
    assert len(sound.levels) > 2
    assert all(level.problems and not level.wrong_oracles for level in sound.levels)
    assert 0.0 < sound.median_seconds <= sound.worst_seconds


@SESSION
async def test_a_verifier_that_pays_anything_is_found(audits: dict[str, TaskAudit]) -> None:
    kinds = {finding.kind for finding in audits[PAYS_ANYTHING].findings}
    assert {"junk", "constant", "question", "several answers"} <= kinds
    floors = audits[PAYS_ANYTHING].floors
    assert floors.chance.solved == floors.no_reasoning.solved == 1.0
    assert floors.chance.items == floors.no_reasoning.items == 40


@SESSION
@pytest.mark.parametrize(
    ("task", "strategy", "least", "most"),
    [
        ("rotate_matrix", "the last grid backwards", 0.1, 0.5),
        ("graph_color", "the last bracket mapped onto the first in turn", 0.3, 0.8),
    ],
)
async def test_what_needs_no_reasoning_is_found(
    pool: TaskPool, task: str, strategy: str, least: float, most: float
) -> None:
    found = await find_floors(pool, task, 60)
    problem = await pool.generate(Recipe(task=task, seed=3))
    answers = strategies(problem.question)
    assert answers[found.no_reasoning.label] == answers[strategy]
    assert found.no_reasoning.low <= found.no_reasoning.solved <= found.no_reasoning.high
    assert least <= found.no_reasoning.solved <= most
    assert found.chance.solved < found.no_reasoning.solved


@SESSION
@pytest.mark.parametrize("task", ["aiw", "course_schedule", "number_format", "pool_matrix"])
async def test_the_floors_that_are_kept_hold_on_new_items(pool: TaskPool, task: str) -> None:
    kept = floors()[task]
    scores: dict[Floor, list[dict[str, float]]] = {kept.chance: [], kept.no_reasoning: []}
    for recipe in evaluation_recipes(99, [task], 40):
        problem = await generate_faultless(pool.generate, Counter(), recipe)
        copied = strategies(problem.question).get(kept.no_reasoning.label, "")
        verdicts = await pool.verify(problem, [kept.chance.label, copied])
        for one, verdict in zip(kept, verdicts, strict=True):
            scores[one].append({one.label: verdict.score or 0.0})
    for one, own in scores.items():
        again = floor(one.label, own, solved_score(task))
        assert again.low <= one.high
        assert one.low <= again.high


@SESSION
async def test_levels_that_the_library_refuses_are_found(audits: dict[str, TaskAudit]) -> None:
    refused = {f.level for f in audits[REFUSES_LEVELS].findings if f.kind == "generation"}
    assert refused == {1, 2}


@SESSION
async def test_an_oracle_without_full_credit_is_counted(pool: TaskPool) -> None:
    right = await pool.generate(Recipe(task="gcd", seed=3))
    other = await pool.generate(Recipe(task="lcm", seed=3))
    wrong = type(right)(
        recipe=right.recipe, question="?", oracle=f"{other.oracle}0", entry=right.entry
    )
    verdicts = await verify_oracles(pool, [right, wrong])
    proof = LevelProof(
        task="gcd", level=3, parameters={}, problems=[right, wrong], verdicts=verdicts
    )
    assert (len(proof.problems), len(proof.wrong_oracles)) == (2, 1)


@SESSION
async def test_a_problem_that_cannot_be_made_is_named(pool: TaskPool) -> None:
    proof = await prove_level(
        pool, "rubiks_cube", None, {"cube_size": 7}, items=2, stop_at_failure=True
    )
    assert not proof.problems
    assert [error.partition(" ")[0] for error in proof.errors] == ["rubiks_cube:"]


@SESSION
async def test_reports_name_every_task_and_what_is_unexplained(
    audits: dict[str, TaskAudit],
) -> None:
    audit = Audit(library_version="0.0", tasks=list(audits.values()))
    for page in (as_text(audit), as_html(audit), as_json(audit), json.dumps(page_data(audit))):
        assert all(task in page for task in audits)
        assert "unexplained" in page.lower()
    assert json.loads(as_json(audit))["unexplained"] == len(audit.unexplained) > 0
    assert "<script" not in as_html(audit)


@pytest.mark.processes
def test_the_command_fails_on_what_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    known = {task: kinds for task, kinds in known_findings().items() if task != PAYS_ANYTHING}
    arguments = ["--tasks", PAYS_ANYTHING, "--items", "3"]
    assert run_audit(arguments, known=known) == 1
    assert f"UNEXPLAINED {PAYS_ANYTHING}, default: junk" in capsys.readouterr().out


@pytest.mark.processes
def test_the_command_writes_its_pages_and_passes_on_what_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {name: tmp_path / name for name in ("html", "markdown", "floors")}
    options = [text for name, path in files.items() for text in (f"--{name}", str(path))]
    tasks = f"{PAYS_ANYTHING},{REFUSES_LEVELS},{SOUND}"
    assert main(["audit", "--tasks", tasks, "--items", "3", "--json", *options]) == 0
    assert len(json.loads(capsys.readouterr().out)["tasks"]) == 3
    assert all(PAYS_ANYTHING in path.read_text() for path in files.values())


@pytest.mark.processes
def test_a_task_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--tasks", "gdc"]) == 2
    assert "did you mean gcd" in capsys.readouterr().err


def test_an_audit_of_no_items_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--items", "0"]) == 2
    assert "≥ 1, got '0'" in capsys.readouterr().err
