"""`problems` as it is called: sets that can be made again and never meet the evaluation set."""

import json
from pathlib import Path
from typing import Any

import pytest
from datasets import load_from_disk
from pyarrow import parquet

from reasoning_gym_environment.commands.problems import main, require_levels
from reasoning_gym_environment.errors import ConfigurationError, FixableError
from reasoning_gym_environment.problems.sampler import evaluation_seed

SMALL = ["--env.task_processes", "1", "--count", "12"]
COINS = ["--env.include_tasks", "coin_flip", "--levels", "0", "--env.system_prompt", "direct"]
HELD_OUT = ["--env.eval_difficulties", "0", "--env.num_eval_samples_per_task", "6"]


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.processes
def test_demonstrations_leave_out_what_has_no_oracle_and_what_is_evaluated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, held_out = tmp_path / "sft.jsonl", tmp_path / "eval.parquet"
    tasks = ["--env.include_tasks", "coin_flip,rush_hour", "--levels", "0,1"]
    assert main([*SMALL, *tasks, *HELD_OUT, "--demonstrations", "-o", str(out)]) == 0
    rows = rows_of(out)
    recipes = [json.loads(row["recipe"]) for row in rows]
    assert [(r["task"], r["level"]) for r in recipes] == [("coin_flip", 0)] * 12 + [
        ("coin_flip", 1)
    ] * 12
    assert not any(recipe["seed"] % 2 for recipe in recipes)
    assert {message["role"] for row in rows for message in row["messages"]} == {
        "system",
        "user",
        "assistant",
    }
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == [
        f"24 demonstrations of 1 tasks in {out}",
        "skipped tasks without a single oracle: rush_hour",
    ]
    assert said[2].endswith(" whose questions are in the evaluation set")
    with pytest.raises(FixableError, match=r"sft\.jsonl exists; --force replaces it"):
        main([*SMALL, *tasks, "-o", str(out)])

    assert main([*SMALL, *COINS, "--split", "eval", "-o", str(held_out)]) == 0
    table = parquet.read_table(held_out).to_pydict()
    seeds = [json.loads(recipe)["seed"] for recipe in table["recipe"]]
    assert seeds == [evaluation_seed(123, "coin_flip", index) for index in range(12)]
    assert table["prompt"][0][1] == {"role": "user", "content": table["question"][0]}


@pytest.mark.processes
def test_the_same_arguments_give_the_same_dataset(tmp_path: Path) -> None:
    arguments = [*SMALL, *COINS, "--env.seed", "7", "--env.task_parameters"]
    arguments.append('{"coin_flip": {"max_trials": 4}}')
    paths = [tmp_path / "once", tmp_path / "again.jsonl"]
    for path in paths:
        assert main([*arguments, "-o", str(path)]) == 0
    assert load_from_disk(str(paths[0])).to_list() == rows_of(paths[1])
    recipe = json.loads(rows_of(paths[1])[0]["recipe"])
    assert recipe["parameters"] == {"min_trials": 2, "max_trials": 4}


def test_levels_that_some_task_lacks_are_refused() -> None:
    ladders = {"coin_flip": ({},) * 6, "gcd": ({},) * 4, "sudoku": ({},) * 5}
    require_levels([None, 3], ladders)
    with pytest.raises(ConfigurationError) as error:
        require_levels([0, 4], ladders)
    assert str(error.value) == (
        "--levels: level 4 does not exist for gcd (0 to 3); choose lower levels or "
        "exclude tasks with --env.exclude_tasks"
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--count", "0"], "must be an integer ≥ 1, got '0'"),
        (["--count", "1", "--levels", "0,x"], "must be a list of levels such as 0,1, got '0,x'"),
        ([], "missing --count; see --help"),
    ],
)
def test_mistakes_are_told_at_once(options: list[str], said: str) -> None:
    with pytest.raises(FixableError) as raised:
        main([*options, "-o", "out.jsonl"])
    assert said in str(raised.value)


def test_another_suffix_is_refused_before_anything_starts() -> None:
    with pytest.raises(FixableError, match=r"out\.csv ends in \.csv: give a name that ends in"):
        main(["--count", "1", "-o", "out.csv"])


@pytest.mark.processes
def test_rows_of_nemo_gym_have_the_messages_and_the_recipe(tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    assert main([*SMALL, *COINS, "--format", "nemo-gym", "-o", str(out)]) == 0
    rows = rows_of(out)
    assert len(rows) == 12
    for row in rows:
        system, user = row["responses_create_params"]["input"]
        assert (system["role"], user["content"]) == ("system", row["question"])
        assert json.loads(row["recipe"])["task"] == row["metadata"]["source_dataset"] == "coin_flip"


@pytest.mark.processes
def test_rows_of_verl_and_skyrl_have_the_messages_and_the_recipe(tmp_path: Path) -> None:
    for layout, truth in (("verl", "reward_model"), ("skyrl", "reward_spec")):
        out = tmp_path / f"{layout}.parquet"
        assert main([*SMALL, *COINS, "--format", layout, "-o", str(out)]) == 0
        rows = parquet.read_table(out).to_pylist()
        assert len({row[truth]["ground_truth"] for row in rows}) == 12
        assert {json.loads(row[truth]["ground_truth"])["task"] for row in rows} == {"coin_flip"}
        assert [message["role"] for message in rows[0]["prompt"]] == ["system", "user"]
        assert rows[0]["data_source"] == "reasoning-gym/coin_flip"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-o", "rows.parquet"], "-o must end in .jsonl with --format nemo-gym, got rows.parquet"),
        (["-o", "rows.jsonl", "--demonstrations"], "--demonstrations needs --format prompts"),
    ],
)
def test_nemo_gym_reads_jsonl_without_demonstrations(arguments: list[str], said: str) -> None:
    with pytest.raises(FixableError) as raised:
        main(["--count", "1", "--format", "nemo-gym", *arguments])
    assert said in str(raised.value)
