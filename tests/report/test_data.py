"""Files of a report are read once, split, ordered, and refused with a reason."""

import json
from pathlib import Path

import pytest
from report_files import row, write

from reasoning_gym_environment.errors import FixableError
from reasoning_gym_environment.report.data import read_report_data
from reasoning_gym_environment.report.identity import split_of
from reasoning_gym_environment.report.page import write_report


def test_seeds_tell_training_from_evaluation(tmp_path: Path) -> None:
    rows = [row([1.0]), row([0.0], evaluation=True), row([0.0], number=1)]
    data = read_report_data([write(tmp_path, rows)])
    assert [split_of(group) for group in data.groups].count("training") == 2
    assert data.sources[0].kind == "successful groups and evaluation samples"


def test_a_file_that_is_named_twice_is_read_once_and_its_torn_line_counted(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, [row([1.0])])
    path.write_text(path.read_text() + '{"item_id": "gc')
    data = read_report_data([path, path.parent / "." / path.name])
    assert (len(data.groups), data.sources[0].torn) == (1, 1)


def test_groups_come_in_the_order_of_their_times(tmp_path: Path) -> None:
    failed = write(
        tmp_path, [row([0.0], number=n) for n in (0, 2)], "x_FAILED_rollouts_0.jsonl"
    )
    solved = write(
        tmp_path, [row([1.0], number=n) for n in (1, 3)], "x_rollouts_0.jsonl"
    )
    data = read_report_data([failed, solved])
    assert [group.solved for group in data.groups] == [0, 1, 0, 1]
    assert data.ordered


@pytest.mark.parametrize(
    ("names", "ordered"), [(("a_rollouts",), True), (("a", "b_FAILED_rollouts"), False)]
)
def test_without_times_one_kind_of_file_has_an_order_and_two_have_none(
    names: tuple[str, ...], ordered: bool, tmp_path: Path
) -> None:
    rows = [row([0.0], number=number, time=None) for number in range(3)]
    files = [write(tmp_path, rows, f"{name}.jsonl") for name in names]
    assert read_report_data(files).ordered is ordered


def test_metrics_are_read_as_evaluations_write_them(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.json"
    metrics.write_text(json.dumps({"results": {"all": {"eval/solved": 0.5}}}))
    data = read_report_data([metrics, write(tmp_path, [row([1.0], evaluation=True)])])
    assert data.recorded == {str(metrics): {"eval/solved": 0.5}}


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1" + "0" * 400])
def test_a_metric_that_no_page_can_hold_is_left_out(value: str, tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.json"
    metrics.write_text(f'{{"results": {{"all": {{"a": {value}, "b": 1}}}}}}')
    samples = write(tmp_path, [row([1.0], evaluation=True)])
    assert read_report_data([metrics, samples]).recorded == {str(metrics): {"b": 1.0}}
    write_report([metrics, samples], tmp_path / "report.html")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        (
            "a.jsonl",
            '{"tokens": [1]}',
            "row 1 is not a group of rollouts: schema_version must be 1, got None",
        ),
        ("a.jsonl", "", "holds no groups"),
        ("a.json", '{"results": {"all": {}}}', "no rollouts in"),
        ("a.json", "[]", "is not an evaluation's metrics.json"),
        ("a.jsonl", None, "can't be read"),
    ],
)
def test_a_file_of_another_kind_is_refused_by_name(
    name: str, content: str | None, says: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    with pytest.raises(FixableError, match=says) as error:
        read_report_data([path])
    assert name in str(error.value)


def test_a_folder_stands_for_what_runs_wrote_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "evaluation_r" / "step-1"
    folder.mkdir(parents=True)
    samples = write(folder, [row([1.0], evaluation=True)], "samples.jsonl")
    metrics = folder / "metrics.json"
    metrics.write_text(json.dumps({"results": {"all": {"eval/solved": 1.0}}}))
    (folder / "run.json").write_text("{}")
    dump = write(
        tmp_path, [row([1.0])], "reasoning_gym_environment_FAILED_rollouts_r_0000.jsonl"
    )
    write(tmp_path, [{"not": "ours"}], "export.jsonl")
    data = read_report_data([tmp_path])
    assert [source.name for source in data.sources] == [
        *map(str, (samples, dump, metrics))
    ]
    copy = write(folder, [row([1.0], evaluation=True)], "samples.rescored.jsonl")
    with pytest.raises(FixableError, match=r"such as samples\.rescored\.jsonl: name"):
        read_report_data([tmp_path])
    copy.unlink()
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        FixableError, match="empty holds no dumps and no evaluation samples"
    ):
        read_report_data([samples, tmp_path / "empty"])


def test_a_file_and_its_rescored_form_are_refused(tmp_path: Path) -> None:
    files = [
        write(tmp_path, [row([1.0])], name) for name in ("a.jsonl", "a.rescored.jsonl")
    ]
    with pytest.raises(FixableError, match="hold the same rollouts"):
        read_report_data(files)
