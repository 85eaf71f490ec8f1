"""`export` as it is called."""

import json
from pathlib import Path
from typing import Any

import pytest
from datasets import load_dataset, load_from_disk
from pyarrow import parquet
from stored_values import attempt, stored, write_dump

from reasoning_gym_environment.commands.export import main
from reasoning_gym_environment.errors import FixableError


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    poor = attempt(0.3, "poor")
    rows = [
        stored(attempt(1.0, f"right {seed}\ud800"), poor, poor, seed=seed)
        for seed in range(2, 22, 2)
    ]
    return write_dump(tmp_path / "dump.jsonl", rows, torn=True)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_parquet_with_a_summary(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = dump.with_name("out.parquet")
    options = [str(dump), "--format", "sft", "--min-score", "0.2", "-o", str(out)]
    assert main(options) == 0
    assert parquet.read_table(out).num_rows == 20
    assert capsys.readouterr().out.splitlines() == [
        f"20 rows for train in {out}",
        "from 10 groups",
        "10 duplicates skipped",
        "1 torn lines skipped",
        "10 broken characters replaced by U+FFFD",
    ]
    with pytest.raises(FixableError, match="--force replaces it"):
        main(options)
    assert main([*options[:-4], "-o", str(out), "--force"]) == 0
    assert parquet.read_table(out).num_rows == 10


def test_a_folder_stands_for_the_dumps_in_it(tmp_path: Path) -> None:
    name = "reasoning_gym_environment_rollouts_r_0000"
    write_dump(tmp_path / f"{name}.jsonl", [stored(attempt(1.0))])
    (tmp_path / "evaluation").mkdir()
    row = stored(attempt(1.0), attempt(0.5, "other"), seed=3)
    samples = write_dump(tmp_path / "evaluation" / "samples.jsonl", [row])
    out = tmp_path / "out.jsonl"
    for given, rows in (
        ([tmp_path], 1),
        ([tmp_path, samples], 3),
        ([tmp_path / "evaluation"], 2),
    ):
        options = [*map(str, given), "--format", "records", "-o", str(out), "--force"]
        assert main(options) == 0
        assert len(out.read_text().splitlines()) == rows
    write_dump(tmp_path / f"{name}.rescored.jsonl", [stored(attempt(1.0))])
    with pytest.raises(FixableError, match=r"rescored copies of 1 of its 2 files"):
        main([str(tmp_path), "--format", "records", "-o", str(out), "--force"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        FixableError, match="empty holds no dumps and no evaluation samples"
    ):
        main(
            [str(tmp_path / "empty"), "--format", "records", "-o", str(out), "--force"]
        )


@pytest.mark.parametrize("name", ["out.parquet", "out"])
def test_a_message_that_no_column_holds_is_an_error(tmp_path: Path, name: str) -> None:
    row = stored(attempt(1.0, "right"))
    system, user, *_ = row["rollouts"][0]["conversation"]
    system["name"], user["name"] = 0, "x"
    dump = write_dump(tmp_path / "dump.jsonl", [row])
    with pytest.raises(FixableError, match="a column has values of several types"):
        main([str(dump), "--format", "sft", "-o", str(tmp_path / name)])
    assert [path.name for path in tmp_path.iterdir()] == ["dump.jsonl"]
    assert main([str(dump), "--format", "sft", "-o", str(tmp_path / "out.jsonl")]) == 0


def test_conditions_select_rollouts(dump: Path) -> None:
    out = dump.with_name("out.jsonl")
    given = [str(dump), "--format", "records", "-o", str(out), "--where"]
    assert main([*given, "status:wrong reward:<0.5"]) == 0
    rows = rows_of(out)
    assert [(row["score"], row["rollout"]) for row in rows] == [(0.3, 1)] * 10
    with pytest.raises(FixableError, match="too few items, or change --where"):
        main([*given, "reward:>1", "--force"])


def test_a_dataset_folder_with_splits(
    dump: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = dump.with_name("out")
    assert (
        main([str(dump), "--format", "dpo", "-o", str(out), "--test-share", "0.4"]) == 0
    )
    loaded = load_from_disk(str(out))
    assert loaded["train"].num_rows + loaded["test"].num_rows == 10
    assert not set(loaded["train"]["recipe"]) & set(loaded["test"]["recipe"])
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == f"{loaded['train'].num_rows} rows for train in {out}"
    assert second == f"{loaded['test'].num_rows} rows for test in {out}"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--format", "sft", "--min-score", "1.5"],
            "give no rows for train: lower --min-score",
        ),
        (
            ["--format", "sft", "--test-share", "1e-9"],
            "no rows for test: .*change --test-share",
        ),
    ],
)
def test_nothing_to_write_is_an_error_that_leaves_nothing(
    options: list[str], said: str, dump: Path
) -> None:
    with pytest.raises(FixableError, match=said):
        main([str(dump), *options, "-o", str(dump.with_name("out"))])
    assert [path.name for path in dump.parent.iterdir()] == ["dump.jsonl"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--format", "dpo", "--min-score", "1"], "--min-score needs --format sft"),
        (
            ["--format", "dpo", "--test-share", "1"],
            "--test-share must be a number ≥ 0 and < 1, got '1'",
        ),
        (
            ["--format", "nemo-gym"],
            "-o must end in .jsonl with --format nemo-gym, got out",
        ),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    options: list[str], said: str, dump: Path
) -> None:
    with pytest.raises(FixableError) as raised:
        main([str(dump), *options, "-o", "out"])
    assert said in str(raised.value)


def test_a_dump_is_never_replaced(dump: Path) -> None:
    before = dump.read_bytes()
    other = dump.with_name("other.jsonl")
    other.write_bytes(before)
    folder = dump.parent / "rows"
    assert main([str(dump), "--format", "sft", "-o", str(folder)]) == 0
    inside = folder / "dump.jsonl"
    inside.write_bytes(before)
    for given, output, said in (
        (dump, dump, "would overwrite the input"),
        (dump, other, "holds stored groups, which are never replaced"),
        (inside, folder, "would overwrite the input"),
    ):
        with pytest.raises(FixableError, match=said):
            main([str(given), "--format", "sft", "-o", str(output), "--force"])
    assert [path.read_bytes() for path in (dump, other, inside)] == [before] * 3


def test_jsonl_is_written_and_replaced_when_forced(dump: Path) -> None:
    out = dump.with_name("out.jsonl")
    options = [str(dump), "--format", "dpo", "-o", str(out)]
    assert main(options) == 0
    rows = rows_of(out)
    assert main([*options[:-1], str(dump.with_name("out.parquet"))]) == 0
    assert rows == parquet.read_table(dump.with_name("out.parquet")).to_pylist()
    loaded = load_dataset("json", data_files=str(out), cache_dir=str(dump.parent))
    assert loaded["train"][0] == rows[0]
    with pytest.raises(FixableError, match="--force replaces it"):
        main(options)
    assert main([*options, "--force", "--test-share", "0.4"]) == 0
    written = {path.name for path in dump.parent.glob("out.*.jsonl")}
    assert written == {"out.train.jsonl", "out.test.jsonl"}


def test_nemo_gym_gets_each_problem_once(
    dump: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = dump.with_name("rows.jsonl")
    assert main([str(dump), str(dump), "--format", "nemo-gym", "-o", str(out)]) == 0
    rows = rows_of(out)
    assert [row["question"] for row in rows] == [
        f"Question {seed}?" for seed in range(2, 22, 2)
    ]
    assert capsys.readouterr().out.splitlines() == [
        f"10 rows for train in {out}",
        "from 10 groups",
        "1 torn lines skipped",
    ]


@pytest.mark.parametrize(
    ("layout", "truth"), [("verl", "reward_model"), ("skyrl", "reward_spec")]
)
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_verl_and_skyrl_get_each_problem_once(
    layout: str, truth: str, suffix: str, dump: Path
) -> None:
    out = dump.with_name(f"rows{suffix}")
    assert main([str(dump), str(dump), "--format", layout, "-o", str(out)]) == 0
    rows = parquet.read_table(out).to_pylist() if suffix == ".parquet" else rows_of(out)
    seeds = [json.loads(row[truth]["ground_truth"])["seed"] for row in rows]
    assert seeds == list(range(2, 22, 2))
    assert [row["prompt"][1]["content"] for row in rows] == [
        f"Question {n}?" for n in seeds
    ]
    assert {row["data_source"] for row in rows} == {"reasoning-gym/gcd"}


@pytest.mark.parametrize("name", ["sft.csv", "sft.json", "sft.parquet.gz"])
def test_an_unknown_suffix_is_refused(name: str, dump: Path) -> None:
    with pytest.raises(
        FixableError, match=r"give a name that ends in \.jsonl or \.parquet"
    ):
        main([str(dump), "--format", "sft", "-o", str(dump.with_name(name))])
    assert [path.name for path in dump.parent.iterdir()] == ["dump.jsonl"]


def test_evaluation_items_are_pointed_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [stored(attempt(1.0), seed=seed) for seed in (2, 3, 5)]
    dump = write_dump(tmp_path / "samples.jsonl", rows)
    assert main([str(dump), "--format", "sft", "-o", str(tmp_path / "out")]) == 0
    assert "2 groups are evaluation items: do not train" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["sft", "dpo"])
def test_where_no_completion_is_complete_that_is_the_reason(
    form: str, tmp_path: Path
) -> None:
    row = stored(attempt(1.0), attempt(0.0))
    for rollout in row["rollouts"]:
        rollout["finish_reason"] = "tool_calls"
    dump = write_dump(tmp_path / "dump.jsonl", [row])
    options = [str(dump), "--format", form, "-o", str(tmp_path / "out.jsonl")]
    with pytest.raises(FixableError, match="tool_calls") as raised:
        main(options)
    assert "--min-score" not in str(raised.value)
