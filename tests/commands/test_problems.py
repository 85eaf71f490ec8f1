"""`problems` as it is called: sets that can be made again and never meet the evaluation set."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from datasets import load_from_disk
from evaluation_values import sampled
from pyarrow import parquet

from reasoning_gym_environment.commands.problems import main, require_levels
from reasoning_gym_environment.errors import ConfigurationError, FixableError
from reasoning_gym_environment.inference.prompts import BOXED_SYSTEM_PROMPTS
from reasoning_gym_environment.problems.split import belongs_to_evaluation

SMALL = ["--env.task_processes", "1", "--count", "12"]
COINS = [
    "--env.include_tasks",
    "coin_flip",
    "--levels",
    "0",
    "--env.system_prompt",
    "direct",
]


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.processes
def test_problems_are_printed_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gcd", "--count", "3", "--env.task_processes", "1"]) == 0
    shown = capsys.readouterr().out
    assert shown.count('"task": "gcd"}') == shown.count("\noracle: ") == 3
    with pytest.raises(ConfigurationError, match="-o is missing"):
        main(["gcd", "--count", "3", "--demonstrations"])


@pytest.mark.processes
def test_demonstrations_leave_out_what_has_no_oracle_and_what_evaluation_asks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "sft.jsonl"
    tasks = ["--env.include_tasks", "coin_flip,rush_hour", "--levels", "0,1"]
    assert main([*SMALL, *tasks, "--demonstrations", "-o", str(out)]) == 0
    rows = rows_of(out)
    recipes = [json.loads(row["recipe"]) for row in rows]
    made = [(recipe["task"], recipe["level"]) for recipe in recipes]
    assert made == [("coin_flip", level) for level in (0, 1) for _ in range(12)]
    questions = [row["messages"][-2]["content"] for row in rows]
    assert not any(map(belongs_to_evaluation, questions))
    roles = {message["role"] for row in rows for message in row["messages"]}
    assert roles == {"system", "user", "assistant"}
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == [
        f"24 demonstrations of 1 tasks in {out}",
        "skipped tasks without a single oracle: rush_hour",
    ]
    with pytest.raises(FixableError, match=r"sft\.jsonl exists; --force replaces it"):
        main([*SMALL, *tasks, "-o", str(out)])


@pytest.mark.processes
def test_rows_and_demonstrations_have_the_answer_format(tmp_path: Path) -> None:
    boxes = ["--env.include_tasks", "gcd", "--env.answer_format", "boxed"]
    shown, prompts = tmp_path / "sft.jsonl", tmp_path / "prompts.jsonl"
    assert main([*SMALL, *boxes, "--demonstrations", "-o", str(shown)]) == 0
    assert main([*SMALL, *boxes, "-o", str(prompts)]) == 0
    for demonstrated, row in zip(rows_of(shown), rows_of(prompts), strict=True):
        [system, question, reply] = demonstrated["messages"]
        assert row["prompt"] == [system, question]
        assert system["content"] == BOXED_SYSTEM_PROMPTS["think"]
        assert reply["content"].endswith(rf"\boxed{{{row['oracle']}}}")


@pytest.mark.processes
def test_the_same_arguments_give_the_same_dataset(tmp_path: Path) -> None:
    arguments = [*SMALL, *COINS, "--env.seed", "7", "--env.task_parameters"]
    arguments.append('{"coin_flip": {"max_trials": 4}}')
    paths = [tmp_path / "once", tmp_path / "again.jsonl"]
    for path in paths:
        assert main([*arguments, "-o", str(path)]) == 0
    rows = rows_of(paths[1])
    assert load_from_disk(str(paths[0])).to_list() == rows
    assert json.loads(rows[0]["recipe"])["parameters"] == {
        "min_trials": 2,
        "max_trials": 4,
    }
    assert rows[0]["prompt"][1] == {"role": "user", "content": rows[0]["question"]}


def test_levels_that_some_task_lacks_are_refused() -> None:
    ladders = {"coin_flip": ({},) * 6, "gcd": ({},) * 4, "sudoku": ({},) * 5}
    require_levels([None, 3], ladders)
    with pytest.raises(ConfigurationError) as error:
        require_levels([0, 4], ladders)
    assert str(error.value) == (
        "--levels: level 4 does not exist for gcd (0 to 3); choose lower levels or "
        "exclude tasks with --env.exclude_tasks"
    )


@pytest.mark.processes
def test_rows_are_at_the_levels_that_teach_the_evaluated_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half = (1.0, 0.0) * 4
    most = (1.0,) * 7 + (0.0,)
    few = (0.0,) * 7 + (1.0,)
    samples = [
        *(sampled("coin_flip", 0, *most, seed=seed) for seed in range(1, 100, 2)),
        *(sampled("coin_flip", 5, *few, seed=seed) for seed in range(1, 100, 2)),
        *(sampled("gcd", level, 1.0) for level in (0, 3)),
        *(sampled("lcm", 1, *half, seed=seed) for seed in range(1, 20, 2)),
        *(sampled("number_sorting", level, 0.0) for level in (0, 1)),
        sampled("base_conversion", None, 1.0),
    ]
    evaluation, out = tmp_path / "evaluation", tmp_path / "rows.parquet"
    evaluation.mkdir()
    (evaluation / "samples.jsonl").write_text(
        "".join(sample.line() for sample in samples)
    )
    tasks = "coin_flip,gcd,lcm,number_sorting,leg_counting"
    options = ["--env.include_tasks", tasks]
    source = ["--from-evaluation", str(evaluation)]
    options += [*source, "--target", "0.65", "--format", "verl"]
    assert main([*SMALL, *options, "-o", str(out)]) == 0
    recipes = [
        json.loads(r["reward_model"]["ground_truth"])
        for r in parquet.read_table(out).to_pylist()
    ]
    made = [(recipe["task"], recipe["level"]) for recipe in recipes]
    # 24 problems of arithmetic for gcd and lcm, of which only lcm stays
    assert Counter(made) == {
        ("coin_flip", 1): 4,
        ("coin_flip", 2): 8,
        ("lcm", 1): 24,
    }
    said = capsys.readouterr().out.splitlines()
    assert said[1:4] == [
        "no level teaches, always solved: gcd",
        "no level teaches, never solved: number_sorting",
        "no task is left of: algorithmic",
    ]
    assert [line.split()[:4] for line in said[5:7]] == [
        ["coin_flip", "-", "-", "1.70"],
        ["lcm", "-", "-", "1.00"],
    ]
    assert said[7].endswith(" of groups of 8 have signal")
    assert said[8:10] == [
        "left out, evaluated but not among these tasks: base_conversion",
        f"left out, without a score in {evaluation}: 1 tasks",
    ]
    with pytest.raises(ConfigurationError, match=r"env\.group_size must be ≥ 2"):
        main([*SMALL, *options, "--env.group_size", "1", "-o", str(out), "--force"])


@pytest.mark.processes
def test_evaluation_items_for_nemo_gym_have_the_messages_and_the_recipe(
    tmp_path: Path,
) -> None:
    out = tmp_path / "rows.jsonl"
    options = ["--split", "eval", "--format", "nemo-gym", "-o", str(out)]
    assert main([*SMALL, *COINS, *options]) == 0
    rows = rows_of(out)
    # Level 0 has few questions, and evaluation a quarter of them.
    assert 12 >= len({row["question"] for row in rows}) == len(rows) > 8
    assert all(belongs_to_evaluation(row["question"]) for row in rows)
    for row in rows:
        system, user = row["responses_create_params"]["input"]
        assert (system["role"], user["content"]) == ("system", row["question"])
        assert (
            json.loads(row["recipe"])["task"]
            == row["metadata"]["source_dataset"]
            == "coin_flip"
        )


@pytest.mark.processes
def test_rows_of_verl_and_skyrl_have_the_messages_and_the_recipe(
    tmp_path: Path,
) -> None:
    for layout, truth in (("verl", "reward_model"), ("skyrl", "reward_spec")):
        out = tmp_path / f"{layout}.parquet"
        assert main([*SMALL, *COINS, "--format", layout, "-o", str(out)]) == 0
        rows = parquet.read_table(out).to_pylist()
        assert len({row[truth]["ground_truth"] for row in rows}) == 12
        assert {json.loads(row[truth]["ground_truth"])["task"] for row in rows} == {
            "coin_flip"
        }
        assert [message["role"] for message in rows[0]["prompt"]] == ["system", "user"]
        assert rows[0]["data_source"] == "reasoning-gym/coin_flip"


NEMO_GYM = ["--count", "1", "--format", "nemo-gym", "-o"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-o", "out.jsonl", "--count", "0"], "must be an integer ≥ 1, got '0'"),
        (
            ["--count", "1", "--levels", "0,x"],
            "must be a list of levels such as 0,1, got '0,x'",
        ),
        (["-o", "out.jsonl"], "missing --count; see --help"),
        (
            ["--count", "1", "-o", "out.csv"],
            "out.csv ends in .csv: give a name that ends in",
        ),
        (
            [*NEMO_GYM, "rows.parquet"],
            "-o must end in .jsonl with --format nemo-gym, got rows.parquet",
        ),
        (
            [*NEMO_GYM, "rows.jsonl", "--demonstrations"],
            "--demonstrations needs --format prompts",
        ),
        (
            ["--count", "1", "--difficulties", "0.5"],
            "--difficulties needs --split eval, and no --levels",
        ),
        (
            [*NEMO_GYM, "rows.jsonl", "--target", "0.4"],
            "--target needs --from-evaluation",
        ),
        (
            [*NEMO_GYM, "rows.jsonl", "--from-evaluation", "evals", "--levels", "1"],
            "--levels: --from-evaluation chooses the levels; give one of them",
        ),
    ],
)
def test_mistakes_are_told_at_once(options: list[str], said: str) -> None:
    with pytest.raises(FixableError) as raised:
        main(options)
    assert said in str(raised.value)


@pytest.mark.processes
def test_training_rows_at_a_level_ask_nothing_of_its_evaluation_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held_out, out = tmp_path / "eval.jsonl", tmp_path / "train.jsonl"
    options = ["prime_factorization", "--levels", "0", "--env.task_processes", "1"]
    evaluation = ["--split", "eval", "--count", "10", "-o", str(held_out)]
    assert main([*options, *evaluation]) == 0
    assert main([*options, "--count", "300", "-o", str(out)]) == 0
    evaluated = {row["question"] for row in rows_of(held_out)}
    assert len(evaluated) == 10
    assert evaluated.isdisjoint(row["question"] for row in rows_of(out))
    assert "few questions: " in capsys.readouterr().out


@pytest.mark.processes
def test_levels_that_training_asks_too_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["tower_of_hanoi", "coin_flip", "--levels", "0", "--count", "4"]
    options += ["--split", "eval", "--env.task_processes", "1"]
    assert main([*options, "-o", str(tmp_path / "eval.jsonl")]) == 0
    named = "few questions, which training asks too: tower_of_hanoi 0"
    assert named in capsys.readouterr().out.splitlines()


@pytest.mark.processes
def test_an_evaluation_file_has_each_question_once_and_says_how_many_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "eval.jsonl"
    options = ["coin_flip", "--split", "eval", "--difficulties", "0", "--count", "90"]
    assert main([*options, "--env.task_processes", "1", "-o", str(out)]) == 0
    questions = [row["question"] for row in rows_of(out)]
    assert len(set(questions)) == len(questions) < 90
    assert (
        f"coin_flip at difficulty 0 has only {len(questions)} questions: each is written once"
        in capsys.readouterr().out
    )
