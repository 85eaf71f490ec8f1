"""`task` registers a function with reasoning-gym as any module registers its datasets."""

import random
import subprocess
import sys
from typing import Any

import pytest
from reasoning_gym.factory import CURRICULA, DATASETS, create_dataset

from reasoning_gym_environment import ConfigurationError, task
from reasoning_gym_environment.tasks.ladders import curriculum_levels, parameter_names


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take what a test registers out of the library's registries afterwards."""
    for registry in (DATASETS, CURRICULA):
        monkeypatch.setitem(registry, "doubled", None)
        del registry["doubled"]  # type: ignore[attr-defined] # a union of two registries


def doubled(random: random.Random, level: int) -> tuple[str, str, Any]:
    number = random.randrange(10 ** (level + 3))
    return f"What is twice {number}?", str(2 * number), [2 * number]


def test_a_function_is_a_dataset_with_levels_and_stays_a_function() -> None:
    assert task(levels=4)(doubled) is doubled
    first, second = create_dataset("doubled", seed=7, size=2, level=2)
    question, answer, data = doubled(random.Random(8), 2)
    assert (second["question"], second["answer"]) == (question, answer)
    assert second["metadata"] == {
        "source_dataset": "doubled",
        "source_index": 1,
        "data": data,
    }
    assert first != second
    assert curriculum_levels("doubled") == [{"level": level} for level in range(4)]
    assert parameter_names("doubled") == ("level",)
    assert DATASETS["doubled"][0].__module__ == __name__
    with pytest.raises(ValueError, match="level must be from 0 to 3, got 4"):
        create_dataset("doubled", level=4)


def test_a_verifier_gets_answer_and_data_else_only_the_answer_is_right() -> None:
    def scores(**verifier: Any) -> list[float]:
        DATASETS.pop("doubled", None)
        task(levels=1, **verifier)(doubled)
        dataset = create_dataset("doubled", seed=7, size=1)
        texts = (dataset[0]["answer"], f"{dataset[0]['answer']} or 3", "")
        return [dataset.score_answer(text, dataset[0]) for text in texts]

    assert scores() == [1.0, 0.0, 0.0]
    assert scores(verifier=lambda answer, data: str(data[0]) in answer and 0.5) == [
        0.5,
        0.5,
        0.0,
    ]
    for score in (5, -0.1, float("nan"), None):
        with pytest.raises(ValueError, match=rf"a score in \[0, 1\], got {score}"):
            scores(verifier=lambda answer, data, score=score: score)


def test_a_function_that_returns_no_question_with_answer_and_data_is_told() -> None:
    def doubled(random: random.Random, level: int) -> Any:
        return "one", "two"

    task(levels=1)(doubled)
    with pytest.raises(
        TypeError, match=r"must return \(question, answer, data\), got \('one', 'two"
    ):
        create_dataset("doubled", seed=7, size=1)[0]


@pytest.mark.parametrize("levels", [0, True, 2.0, [1, 2]])
def test_levels_are_a_number(levels: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=r"levels must be an .*: write @task\(levels=8\)"
    ):
        task(levels=levels)


def test_mistakes_in_the_decorator_say_what_to_write() -> None:
    with pytest.raises(
        ConfigurationError, match=r"got <function .*: write @task\(levels=8\)"
    ):
        task(doubled)  # type: ignore[arg-type]  # as by `@task` without parentheses
    with pytest.raises(
        ConfigurationError, match="verifier must be a function, got 'doubled'"
    ):
        task(8, verifier="doubled")  # type: ignore[arg-type]  # a mistake of its user


@pytest.mark.processes
def test_its_import_is_light_and_registers_nothing_in_the_started_program() -> None:
    program = (
        "import sys; from reasoning_gym_environment import task\n"
        "@task(levels=2)\ndef f(random, level): return '', '', None\n"
        "print(*{name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert not {"pydantic", "reasoning_gym", "numpy"} & set(done.stdout.split())


def test_a_task_says_what_its_proof_needs_to_know() -> None:
    def within(answer: str, data: Any) -> float:
        return float(abs(float(answer) - data[0]) <= data[0] / 100)

    task(
        levels=1,
        verifier=within,
        solve=lambda question, data: f"{question}: {data[0]}",
        tolerance=0.01,
        waive={"near_miss": "1 % is near enough"},
    )(doubled)
    dataset: Any = DATASETS["doubled"][0]
    assert (dataset.checks_labels, dataset.tolerance) == (True, 0.01)
    assert dataset.waive == {"near_miss": "1 % is near enough"}
    entry = {"question": "What?", "metadata": {"data": [3]}}
    assert dataset.solve(entry) == "What?: 3"
    DATASETS.pop("doubled")
    task(levels=1)(doubled)
    plain: Any = DATASETS["doubled"][0]
    assert (plain.checks_labels, hasattr(plain, "solve")) == (False, False)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"solve": "7"}, "solve must be a function, got '7'"),
        ({"tolerance": "1 %"}, "tolerance must be a number from 0 to below 1"),
        ({"tolerance": float("nan")}, "tolerance must be a number from 0 to below 1"),
        ({"tolerance": 0.01}, "add the verifier"),
        ({"waive": {"near_miss": " "}}, "waive must map findings to reasons"),
        ({"waive": ["near_miss"]}, "waive must map findings to reasons"),
    ],
)
def test_what_a_task_says_wrongly_is_refused(
    arguments: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        task(levels=1, **arguments)
