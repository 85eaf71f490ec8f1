"""A function is evaluated in programs and notebooks; what it does wrong is data or an error."""

import asyncio
import functools
import inspect
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from reasoning_gym_environment import (
    AsyncReasoningGym,
    evaluate,
    evaluate_async,
    read_results,
)
from reasoning_gym_environment.errors import ConfigurationError, FixableError
from reasoning_gym_environment.evaluation.options import EvaluationOptions
from reasoning_gym_environment.records import Status

pytestmark = pytest.mark.processes

FEW: dict[str, Any] = {"tasks": ["gcd"], "processes": 1}
ROOT = Path(__file__).parents[2]

Messages = list[dict[str, str]]


def zero(messages: Messages) -> str:
    return "<answer>0</answer>"


async def zero_async(messages: Messages) -> str:
    await asyncio.sleep(0)
    return "<answer>0</answer>"


class Zero:
    """An object that is called, which is asynchronous."""

    async def __call__(self, messages: Messages) -> str:
        return await zero_async(messages)


def statuses(folder: Path) -> Counter[Status]:
    rollouts = [r for s in read_results(folder).samples for r in s.rollouts]
    return Counter(rollout.status for rollout in rollouts)


@pytest.mark.parametrize(
    ("complete", "model"),
    [
        (zero, "zero"),
        (zero_async, "zero_async"),
        (Zero(), "Zero"),
        (lambda messages: zero_async(messages), "<lambda>"),
        (functools.partial(zero), "zero"),
    ],
)
async def test_any_function_is_evaluated_in_a_running_loop(
    complete: Any, model: str, tmp_path: Path
) -> None:
    results = await evaluate_async(complete, folder=tmp_path, **FEW)
    assert results.settings["model_name"] == model
    assert results.report.coverage == (5, 5)
    stored = read_results(str(tmp_path))
    assert stored.samples == results.samples
    metrics = json.loads((tmp_path / "metrics.json").read_text())["results"]["all"]
    assert metrics == results.report.numbers()
    assert results.table().splitlines()[1].split()[:5] == [
        "mean",
        "over",
        "items",
        "5",
        "0.0%",
    ]


async def test_a_function_gets_the_prompt_of_each_item_as_often_as_it_is_to_attempt(
    tmp_path: Path,
) -> None:
    calls: list[Messages] = []

    async def complete(messages: Messages) -> str:
        calls.append([dict(message) for message in messages])
        messages.clear()
        return "\\boxed{1}"

    options: dict[str, Any] = {**FEW, "eval_attempts": 3, "eval_difficulties": (0, 1)}
    results = await evaluate_async(
        complete,
        folder=tmp_path,
        system_prompt="direct",
        answer_format="boxed",
        num_eval_samples_per_task=2,
        **options,
    )
    assert len(calls) == 3 * 2 * 3
    assert {message["role"] for message in calls[0]} == {"system", "user"}
    assert "\\boxed{}" in calls[0][0]["content"]
    questions = {sample.question for sample in results.samples}
    assert {call[-1]["content"] for call in calls} == questions
    assert sorted(results.report.difficulties) == [0, 1]
    assert Status.NO_ANSWER not in statuses(tmp_path)


def test_bad_replies_leave_items_without_a_score_and_a_second_call_asks_them_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad: list[Any] = [None, 3.5, {"content": "4"}, b"4"]
    asked: list[str] = []

    def complete(messages: Messages) -> Any:
        asked.append(messages[-1]["content"])
        number = len(asked)
        if number == 2:
            raise ValueError("a limit\nof the rate")
        if number == 3:
            sys.exit("it leaves")
        if number == 4:
            raise KeyboardInterrupt("it stops")
        return bad[number - 5] if 5 <= number < 9 else "<answer>0</answer>"

    options: dict[str, Any] = {**FEW, "num_eval_samples_per_task": 10}
    results = evaluate(complete, folder=tmp_path, **options)
    assert results.report.coverage == (3, 10)
    details = [s.rollouts[0].detail for s in results.samples if not s.scored]
    assert [d.startswith("complete: ") for d in details] == [True] * 7
    for reason, detail in zip(
        (
            "ValueError: a limit of the rate (",
            "it leaves",
            "it stops",
            "None",
            "3.5",
            "'content'",
            "b'4'",
        ),
        details,
        strict=True,
    ):
        assert reason in detail
    assert __file__ in details[0]
    assert any("complete: " in r.message for r in caplog.records)
    [incomplete] = [m for m in caplog.messages if "7 of 10 items" in m]
    assert f"repeat the call with folder {tmp_path}" in incomplete

    again: list[str] = []

    def better(messages: Messages) -> str:
        again.append(messages[-1]["content"])
        return "<answer>0</answer>"

    completed = evaluate(better, folder=tmp_path, model="complete", **options)
    assert completed.report.coverage == (10, 10)
    assert again == asked[1:8]


@pytest.mark.parametrize("is_async", [True, False])
def test_a_function_that_is_always_wrong_ends_the_evaluation_with_its_error(
    is_async: bool, tmp_path: Path
) -> None:
    calls = []

    def wrong(messages: Messages) -> str:
        calls.append(messages)
        return messages[9]["content"]

    async def wrong_async(messages: Messages) -> str:
        return wrong(messages)

    complete = wrong_async if is_async else wrong
    options: dict[str, Any] = {**FEW, "num_eval_samples_per_task": 60}
    with pytest.raises(FixableError) as raised:
        evaluate(complete, folder=tmp_path, **options)
    assert "IndexError" in str(raised.value)
    assert f"{__file__}, line " in str(raised.value)
    assert f"folder {tmp_path}" in str(raised.value)
    assert len(calls) <= (5 + 16 if is_async else 6)


@pytest.mark.parametrize("is_async", [True, False])
def test_a_call_that_hangs_leaves_its_item_without_a_score(
    is_async: bool, tmp_path: Path
) -> None:
    never = threading.Event()
    calls = []

    def hangs(messages: Messages) -> str:
        calls.append(messages)
        if len(calls) == 2:
            never.wait()
        return "<answer>0</answer>"

    async def hangs_async(messages: Messages) -> str:
        calls.append(messages)
        if len(calls) == 2:
            await asyncio.Event().wait()
        return "<answer>0</answer>"

    complete = hangs_async if is_async else hangs
    try:
        results = evaluate(complete, folder=tmp_path, timeout=0.5, **FEW)
    finally:
        never.set()
    assert results.report.coverage == (4, 5)
    [detail] = [s.rollouts[0].detail for s in results.samples if not s.scored]
    assert "0.5 seconds" in detail


def test_a_plain_function_is_called_once_at_a_time_unless_told_otherwise(
    tmp_path: Path,
) -> None:
    running = 0
    most = 0
    lock = threading.Lock()
    both = threading.Barrier(2, timeout=30)

    def complete(messages: Messages) -> str:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        if limit == 2:
            both.wait()
        with lock:
            running -= 1
        return "<answer>0</answer>"

    options: dict[str, Any] = {**FEW, "eval_attempts": 2}
    for limit in (None, 2):
        most = 0
        evaluate(
            complete, folder=tmp_path / str(limit), max_eval_workers=limit, **options
        )
        assert most == (limit or 1)


@pytest.mark.nightly
def test_an_interrupted_evaluation_goes_on_in_its_folder(tmp_path: Path) -> None:
    """Also after the end of the process, without one answer asked for twice."""
    program = """
import sys, time
from pathlib import Path
from reasoning_gym_environment import evaluate

folder = Path(sys.argv[1])
asked = folder / "asked.txt"

def slow(messages):
    with asked.open("a") as file:
        print(messages[-1]["content"].replace(chr(10), " "), file=file)
    is_fourth = len(asked.read_text().splitlines()) == 4
    if is_fourth:
        print("slow", flush=True)
        time.sleep(600)
    return "<answer>0</answer>"

evaluate(slow, folder=folder / "results", tasks=["gcd"], processes=1)
print("done")
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "slow\n"
        process.send_signal(2)
        process.wait(timeout=60)
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "done\n", done.stderr
    asked = (tmp_path / "asked.txt").read_text().splitlines()
    assert len(asked) == 6
    assert asked[3] in asked[4:]
    assert len(set(asked)) == 5


async def test_a_folder_of_other_options_is_refused(tmp_path: Path) -> None:
    await evaluate_async(zero, folder=tmp_path, limit=1, **FEW)
    with pytest.raises(ConfigurationError, match=r"system_prompt.* another folder$"):
        await evaluate_async(
            zero, folder=tmp_path, limit=1, system_prompt="direct", **FEW
        )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tasks": "gcd"}, "tasks must be"),
        ({"task": ["gcd"]}, "did you mean tasks"),
        ({"tasks": ["gdc"]}, "gdc"),
        ({"limit": 0}, "limit must be an integer ≥ 1, got 0"),
        ({"eval_attempts": "4"}, "eval_attempts must be an integer"),
        ({"eval_difficulties": [2]}, "eval_difficulties must be numbers from 0 to 1"),
        ({"timeout": 0}, "timeout must be a number > 0, got 0"),
        ({"answer_format": "box"}, "answer_format must be one of tags, boxed"),
        ({"system_prompt": "drect"}, "did you mean direct"),
        ({"suite": "smal"}, "small"),
        ({"suite": "small", "tasks": ["gcd"], "limit": 2}, "tasks, limit: "),
        ({"complete": "gpt"}, "complete must be a function from messages to text"),
        ({"folder": 3}, "folder must be a path, got 3"),
        ({"folder": ""}, "folder must be a path, got ''"),
    ],
)
def test_a_mistake_is_named_before_the_first_call(
    options: dict[str, Any], says: str, tmp_path: Path
) -> None:
    def complete(messages: Messages) -> str:
        raise AssertionError("it is called")

    given = {"complete": complete, "folder": tmp_path, "processes": 1, **options}
    with pytest.raises(FixableError, match=says):
        evaluate(given.pop("complete"), **given)


def test_a_folder_is_necessary() -> None:
    with pytest.raises(TypeError, match="folder"):
        evaluate(zero)  # type: ignore[call-arg]  # a newcomer's mistake


def test_each_option_is_shown_and_has_the_default_of_its_kind() -> None:
    parameters = inspect.signature(evaluate).parameters
    assert parameters.keys() == inspect.signature(evaluate_async).parameters.keys()
    gym = inspect.signature(AsyncReasoningGym.__init__).parameters
    for name, field in EvaluationOptions.model_fields.items():
        if name == "eval_temperature":  # the function has its own
            assert name not in parameters
            continue
        default = field.get_default(call_default_factory=True)
        expected = tuple(default) if isinstance(default, list) else default
        assert parameters[name].default == expected
    for name in parameters.keys() & gym.keys():
        assert parameters[name].default == gym[name].default


SCRIPT = """
import asyncio

from reasoning_gym_environment import compare, evaluate, evaluate_async, read_results


def plain(messages: list[dict[str, str]]) -> str:
    return f"<answer>{len(messages)}</answer>"


async def asynchronous(messages: list[dict[str, str]]) -> str:
    await asyncio.sleep(0)
    return "<answer>1</answer>"


def number(messages: list[dict[str, str]]) -> int:
    return 4


def mistakes() -> None:
    evaluate(number, folder="n")  # mistake
    evaluate(plain)  # mistake
    evaluate(plain, folder="n", task=["gcd"])  # mistake
    evaluate(plain, folder="n", limit="3")  # mistake
    evaluate(plain, folder="n", answer_format="box")  # mistake
    compare("plain", "asynchronous")  # mistake
    compare(read_results("plain"))  # mistake
    read_results(3)  # mistake


def main() -> None:
    first = evaluate(plain, folder="plain", tasks=["gcd"], eval_attempts=2, processes=1)
    print(first.report.coverage.scored, first.table().splitlines()[1].split()[3])
    second = asyncio.run(
        evaluate_async(asynchronous, folder="asynchronous", tasks=["gcd"], processes=1)
    )
    for change in compare(first, second, read_results("plain")):
        low: float = change.by_items.difference.low
        verdict: str = change.tasks["gcd"].verdict
        print(change.after.model, low <= 0, verdict)


if __name__ == "__main__":
    main()
"""


def test_the_program_of_a_newcomer_runs_without_a_warning(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-W", "error", "program.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "5 5",
        "asynchronous True can't tell",
        "plain True can't tell",
    ]


@pytest.mark.nightly
def test_mypy_finds_the_mistakes_of_a_newcomer_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(SCRIPT)
    command = f"{sys.executable} -m mypy --strict --config-file= --follow-imports silent".split()
    done = subprocess.run(
        [*command, "--cache-dir", str(tmp_path), "program.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    found = {
        line.split(":")[1] for line in done.stdout.splitlines() if " error: " in line
    }
    lines = SCRIPT.splitlines()
    planted = {str(n) for n, line in enumerate(lines, 1) if "# mistake" in line}
    assert found == planted, done.stdout


async def test_a_notebook_evaluates_in_its_running_loop(tmp_path: Path) -> None:
    cells = [
        "import warnings\nwarnings.simplefilter('error')\n"
        "from reasoning_gym_environment import compare, evaluate, evaluate_async",
        "async def complete(messages):\n    return '<answer>1</answer>'",
        "options = dict(tasks=['gcd'], processes=1)\n"
        "one = evaluate(complete, folder='one', **options)\n"
        "two = await evaluate_async(complete, folder='two', **options)",
        "[change] = compare(one, two)\n"
        "print(change.by_items.items, change.by_items.difference.value)",
    ]
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in cells]
    )
    client = NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}
    )
    await client.async_execute()
    outputs = [output for cell in notebook.cells for output in cell.outputs]
    assert [output.get("text") for output in outputs] == ["5 0.0\n"]
