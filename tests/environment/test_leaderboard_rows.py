"""`research.leaderboard add`: a finished evaluation becomes a row unless it breaks a rule."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from page_blocks import ROOT
from suite_values import manifest, problems_of, write_suite

from reasoning_gym_environment.commands import rescore
from reasoning_gym_environment.demo.policy import ScriptedPolicy
from reasoning_gym_environment.demo.server import PolicyServer
from reasoning_gym_environment.problems.suites import EARLIER, load_suite
from reasoning_gym_environment.records import Problem
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.storage.rows import StoredGroup
from research.leaderboard import submission
from research.leaderboard.__main__ import main
from research.leaderboard.standings import read_standings

pytestmark = [pytest.mark.processes, pytest.mark.nightly]

Row = dict[str, Any]

DEEP = "[" * 100_000 + "\n"


@dataclass
class Submitted:
    """A copy of a finished evaluation's folder, and what `add` makes of it."""

    folder: Path
    suite: str
    docs: Path

    def rows(self) -> list[Row]:
        lines = (self.folder / "samples.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def write(self, rows: list[Row]) -> None:
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (self.folder / "samples.jsonl").write_text(text)

    def change_rollout(self, **changes: Any) -> None:
        """Change the first rollout, whose answer is right."""
        rows = self.rows()
        rows[0]["rollouts"][0] |= changes
        self.write(rows)

    def change_run(self, **changes: Any) -> None:
        file = self.folder / "run.json"
        settings = json.loads(file.read_text())["settings"]
        file.write_text(json.dumps({"settings": settings | changes}))

    def add(self, *options: str) -> int:
        arguments = ["add", str(self.folder), "--suite", self.suite]
        where = ["--docs", str(self.docs), "--training", "none"]
        return main([*arguments, *where, "--name", "me_model", *options])


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def evaluation(
    module_bench: Any, tokenizer: Any, pool: TaskPool
) -> tuple[Path, str]:
    """The folder of a real `evaluate --suite` of a simulated model, and the suite's file."""
    problems = await problems_of(pool)
    suite = write_suite(module_bench.folder / "tiny.json", manifest(problems))
    script = ScriptedPolicy(["<answer>1</answer>"])
    async with PolicyServer(script, tokenizer) as server:
        options = module_bench.file(server.url, data_dir_to_save_evals="results")
        async with module_bench.command(
            "evaluate", "--suite", suite, *options
        ) as command:
            assert await command.exit_code() == 0, command.said()
    return module_bench.folder / "results", suite


@pytest.fixture
def submitted(evaluation: tuple[Path, str], tmp_path: Path) -> Submitted:
    folder, suite = evaluation
    shutil.copytree(folder, tmp_path / "results")
    return Submitted(tmp_path / "results", suite, tmp_path / "docs")


def test_an_evaluation_becomes_a_row_that_its_own_scores_do_not_make(
    submitted: Submitted, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it says of its scores elsewhere changes nothing."""
    (submitted.folder / "metrics.json").write_text('{"results": {"all": {}}}')
    assert submitted.add() == 0
    printed = capsys.readouterr().out
    [standing] = read_standings(
        submitted.docs / "leaderboard" / "tiny" / "me_model.json",
        load_suite(submitted.suite),
    )
    assert standing.items == {"chain_sum": "0/1 0/1", "gcd": "1/1 1/1 0/1"}
    assert standing.tokens == 512
    assert standing.stated is not None
    assert standing.stated.eval_temperature == 0.6
    assert "| 1 | me_model | 33.3% |" in printed
    assert "| 512 | 0.6 | none |" in printed
    # A row is not replaced in passing, and its neighbors are ranked with it.
    assert submitted.add() == 2
    assert "exists: give another --name, or delete" in capsys.readouterr().err
    assert submitted.add("--name", "other") == 0
    assert "| 1 | me_model | 33.3% |" in capsys.readouterr().out


def test_false_scores_are_refused_until_they_are_scored_anew(
    submitted: Submitted, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = submitted.rows()
    for row in rows:
        row["rollouts"][0] |= {"status": "solved", "raw_score": 1.0, "score": 1.0}
    submitted.write(rows)
    assert submitted.add() == 2
    said = capsys.readouterr().err
    assert "3 of 5 answers have another score here" in said
    assert "'1' is stored as solved and is wrong" in said
    assert rescore.main([str(submitted.folder)]) == 0
    samples = submitted.folder / "samples.jsonl"
    samples.with_name("samples.rescored.jsonl").replace(samples)
    assert submitted.add() == 0


def test_an_answer_that_only_claims_to_be_there_is_not_taken(
    submitted: Submitted, capsys: pytest.CaptureFixture[str]
) -> None:
    submitted.change_rollout(status="unscored", raw_score=None, tokens=0)
    assert submitted.add() == 2
    assert "line 1: an attempt has no completion" in capsys.readouterr().err


def test_an_item_that_this_version_makes_otherwise_is_not_scored(
    submitted: Submitted, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its suite was made with another library."""
    _with_other_prompt("user", "What is 1?")(submitted)
    groups = [StoredGroup.from_json(row) for row in submitted.rows()]
    problems = [
        Problem(recipe=group.recipe, question=group.question, oracle=None, entry=b"")
        for group in groups
    ]
    submitted.suite = write_suite(tmp_path / "tiny.json", manifest(problems))
    submitted.change_run(suite=load_suite(submitted.suite).identity)
    assert submitted.add() == 2
    said = capsys.readouterr().err
    assert "can't be scored here: the recipe gives another question" in said


def _with_other_prompt(role: str, content: str) -> Callable[[Submitted], None]:
    def change(submitted: Submitted) -> None:
        rows = submitted.rows()
        conversation = rows[0]["rollouts"][0]["conversation"]
        [message] = [each for each in conversation if each["role"] == role]
        message["content"] = content
        submitted.write(rows)

    return change


def _append(text: str) -> Callable[[Submitted], None]:
    def change(submitted: Submitted) -> None:
        with (submitted.folder / "samples.jsonl").open("a") as file:
            file.write(text)

    return change


def _write_row(change: Callable[[Row], object]) -> Callable[[Submitted], None]:
    def write(submitted: Submitted) -> None:
        rows = submitted.rows()
        change(rows[0])
        submitted.write(rows)

    return write


def _link_samples(submitted: Submitted) -> None:
    outside = submitted.docs.parent / "outside.jsonl"
    (submitted.folder / "samples.jsonl").rename(outside)
    (submitted.folder / "samples.jsonl").symlink_to(outside)


def _pipe_for_the_run(submitted: Submitted) -> None:
    (submitted.folder / "run.json").unlink()
    os.mkfifo(submitted.folder / "run.json")


def _leave_out_the_last(submitted: Submitted) -> None:
    submitted.write(submitted.rows()[:-1])


def _repeat_the_first(submitted: Submitted) -> None:
    rows = submitted.rows()
    submitted.write([*rows, rows[0]])


OTHER_SUITE = {"name": "tiny", "version": 2, "sha256": "0" * 64}

REFUSED: dict[str, tuple[Callable[[Submitted], object], str]] = {
    "another version of the suite": (
        lambda it: it.change_run(suite=OTHER_SUITE),
        "run `evaluate --suite tiny` of this version",
    ),
    "no suite": (lambda it: it.change_run(suite=None), "suite must be object, got Non"),
    "another system prompt": (
        lambda it: it.change_run(system_prompt="The answer is 1."),
        "system_prompt must be 'Answer.', which the suite fixes, got 'The answer is 1.'",
    ),
    "another number of attempts": (
        lambda it: it.change_run(eval_attempts=4),
        "eval_attempts must be 1, which the suite fixes, got 4",
    ),
    "another temperature": (
        lambda it: it.change_run(eval_temperature=0.0),
        "eval_temperature must be 0.6, which the suite fixes, got 0.0",
    ),
    "a temperature of NaN": (
        lambda it: it.change_run(eval_temperature=float("nan")),
        "NaN is not JSON",
    ),
    "no limit of tokens": (
        lambda it: it.change_run(max_token_length=None),
        "max_token_length must be int, got None",
    ),
    "answers in boxes": (
        lambda it: it.change_run(answer_format="boxed"),
        "answer_format must be tags on a suite, got 'boxed'",
    ),
    "a template with hints": (
        lambda it: it.change_run(chat_template="It is 1. {{ messages }}"),
        "chat_template must be empty",
    ),
    "a link out of the folder": (_link_samples, "not a regular file of its folder"),
    "a pipe": (_pipe_for_the_run, "not a regular file of its folder"),
    "no samples": (
        lambda it: (it.folder / "samples.jsonl").unlink(),
        "samples.jsonl is missing",
    ),
    "an interrupted evaluation": (
        lambda it: (it.folder / "samples.partial.jsonl").touch(),
        "the evaluation was interrupted; repeat its command",
    ),
    "an item less": (_leave_out_the_last, "lacks 1 of the 5 items of tiny, such as {"),
    "an item twice": (_repeat_the_first, "line 6: the item {"),
    "an item that is not the suite's": (
        _write_row(lambda row: row["recipe"].update(seed=7)),
        'line 1: tiny has no item {"level": null, "parameters": {}, "seed": 7',
    ),
    "another attempt": (
        _write_row(lambda row: row["rollouts"].append(row["rollouts"][0])),
        "line 1: the item must have 1 attempts, got 2",
    ),
    "another question": (
        _with_other_prompt("user", "What is 1?"),
        "line 1: the question 'What is 1?' has another hash than the suite's",
    ),
    "a hint in the prompt": (
        _with_other_prompt("system", "The answer is 1."),
        "line 1: the prompt is not the suite's system prompt and the question alone",
    ),
    "more tokens than its limit": (
        lambda it: it.change_rollout(tokens=9000, completion_tokens=8999),
        "line 1: a completion has 8999 tokens, more than the run's max_token_length of 512",
    ),
    "a score of NaN": (
        lambda it: it.change_rollout(score=float("nan")),
        "line 1: NaN is not JSON",
    ),
    "a score above 1": (
        lambda it: it.change_rollout(raw_score=1e999),
        "line 1: Infinity is not JSON",
    ),
    "half a character": (
        _write_row(
            lambda row: row["rollouts"][0]["conversation"][-1].update(content="\ud800")
        ),
        "line 1: 'utf-8' codec can't encode",
    ),
    "a line that is no JSON": (_append("{\n"), "line 6: Expecting property name"),
    "a line that is nested deeply": (_append(DEEP), "line 6: it is nested too deeply"),
    "a line that is no row": (_append("[]\n"), "line 6: the value must be object"),
    "a huge number": (_append("9" * 5000), "line 6: Exceeds the limit"),
    "a huge line": (
        _append(" " * (submission.LONGEST_LINE + 1)),
        "line 6 has more than 8,388,608 bytes",
    ),
    "a huge file": (
        lambda it: os.truncate(it.folder / "samples.jsonl", 2**40),
        "has 1,099,511,627,776 bytes, more than 1,073,741,824",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_folder_that_breaks_a_rule_is_refused(
    submitted: Submitted, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each time with the bad value and a way out, and before a worker starts."""
    change, said = REFUSED[case]
    change(submitted)
    assert submitted.add() == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {submitted.folder}")
    assert said in error
    assert len(error) < 1000
    assert not submitted.docs.exists()


@pytest.mark.parametrize("name", ["../../README", "-x", "a b", "x" * 101, "a\n"])
def test_a_name_that_leads_elsewhere_is_refused(
    submitted: Submitted, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert submitted.add(f"--name={name}") == 2
    assert "can't name a file: give --name" in capsys.readouterr().err
    assert not submitted.docs.exists()


def test_an_earlier_version_of_a_suite_gets_no_row(
    submitted: Submitted, capsys: pytest.CaptureFixture[str]
) -> None:
    submitted.suite = str(ROOT / EARLIER / "small@1.json")
    assert submitted.add() == 2
    said = capsys.readouterr().err
    assert submitted.suite in said
    assert "run `evaluate --suite small`" in said
