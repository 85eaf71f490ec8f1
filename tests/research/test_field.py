"""Tasks of a project are proved once each, rows of a package checked, and both told on a page."""

import json
from pathlib import Path
from textwrap import dedent
from zipfile import ZipFile

import pytest

from research.field import (
    PAGE,
    READINGS,
    RESULTS,
    UNREAD,
    Project,
    as_markdown,
    check_wheels,
    drawn,
    prove_project,
    read_results,
)

MODULE = """
    from reasoning_gym_environment import task


    @task(levels=2, verifier=lambda answer, data: 0.0)
    def refuses_its_answer(random, level):
        number = random.randrange(10 ** (level + 6))
        return f"Name {number}.", str(number), number


    @task(levels=2, verifier=lambda answer, data: float(answer == data))
    def tried_before(random, level):
        number = random.randrange(10 ** (level + 6))
        return f"Write {number}.", str(number), str(number)
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    module = tmp_path / "field_tasks.py"
    module.write_text(dedent(MODULE))
    return Project(name="Own", module=str(module), count=None, package="reasoning-gym")


@pytest.mark.nightly
@pytest.mark.processes
@pytest.mark.asyncio(loop_scope="session")
async def test_a_task_that_has_a_result_is_not_tried_again(
    project: Project, tmp_path: Path
) -> None:
    file = tmp_path / "results.jsonl"
    earlier = json.dumps({"project": "Own", "task": "tried_before", "seed": 0})
    file.write_text(f'{earlier}\n{{"project": "cut off')
    await prove_project(project, file, seed=0, count=None, seconds=4.0)
    first, result = read_results(file)
    assert first == json.loads(earlier)
    assert (result["task"], result["verdict"]) == ("refuses_its_answer", "failed")
    assert any(
        (fault["check"], fault["kind"]) == ("solvable", "oracle") and fault["example"]
        for fault in result["faults"]
    )
    before = file.read_bytes()
    await prove_project(project, file, seed=0, count=None)
    assert file.read_bytes() == before


def test_the_draw_begins_alike_whatever_is_wanted_of_it() -> None:
    tasks = [f"task {number}" for number in range(400)]
    assert len({*drawn(tasks, 100)}) == 100
    assert drawn(tasks, 100) == drawn(tasks, 100)
    assert drawn(tasks, None) != tasks


ENTRY = {
    "question": "Say a number.",
    "answer": "7",
    "metadata": {"source_dataset": "no_such_task"},
}


@pytest.mark.nightly
@pytest.mark.processes
@pytest.mark.asyncio(loop_scope="session")
async def test_the_rows_of_a_wheel_are_checked_once(tmp_path: Path) -> None:
    wheel = tmp_path / "some_rows-1.2-py3-none-any.whl"
    with ZipFile(wheel, "w") as content:
        content.writestr("some_rows/data/rows.jsonl", f"{json.dumps(ENTRY)}\n{{}}\n")
        content.writestr("some_rows/__init__.py", "")
    file = tmp_path / "results.jsonl"
    for _ in range(2):
        await check_wheels([wheel], file)
    [result] = read_results(file)
    assert (result["package"], result["rows"]) == ("some_rows-1.2", 2)
    unreadable = result["findings"]["unreadable"]
    assert (unreadable["rows"], unreadable["files"]) == (2, 1)
    assert "no_such_task" in unreadable["first"]["detail"]


def proof(task: str, *kinds: str, seed: int = 0) -> dict[str, object]:
    """A result, whose verdict follows from its faults."""
    return {
        "project": "Own",
        "version": "1.2",
        "task": task,
        "seed": seed,
        "verdict": "failed" if kinds else "not_tried",
        "faults": [
            {
                "check": "not_payable",
                "kind": kind,
                "verdict": "failed",
                "detail": "'' solves 100%",
                "example": f"'a|b' answered '' by {task}",
                "waived": "it is meant so" if kind == "near miss" else "",
            }
            for kind in kinds
        ],
    }


def test_the_page_counts_faults_by_how_they_are_read() -> None:
    results = [
        proof("sound"),
        proof("one", "empty"),
        proof("other", "empty"),
        proof("third", "constant", "near miss"),
        proof("one", seed=1),
        proof("sound", seed=1),
    ]
    readings = [
        {
            "project": "Own",
            "task": "other",
            "fault": "not payable: empty",
            "reading": "meant",
        },
        {
            "project": "Own",
            "task": "*",
            "fault": "not payable: constant",
            "reading": "fault: it always pays 0",
        },
    ]
    page = as_markdown(results, readings)
    rows = [line for line in page.splitlines() if line.startswith("| Own")]
    assert "| Own | 1.2 | 4 | 0 | 1 | 0 | 3 | 1 |" in rows
    assert sum("| 1 | meant |" in row for row in rows) == 1
    assert sum("| 1 | not read yet |" in row for row in rows) == 1
    assert "a\\|b" in page
    assert "1 of 2 tasks had the same faults" in page


def test_the_page_is_that_of_its_results_and_all_faults_are_read() -> None:
    readings = json.loads(READINGS.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    assert page == as_markdown(read_results(RESULTS), readings)
    assert UNREAD not in page
