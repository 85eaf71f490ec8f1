"""`compare` prints what is in the files, and nothing of it moves the cursor."""

import json
from pathlib import Path
from typing import Any

import pytest
from evaluation_values import item
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_values import write_dump

from reasoning_gym_environment import compare as compare_results
from reasoning_gym_environment import read_results
from reasoning_gym_environment.commands import compare
from reasoning_gym_environment.errors import ConfigurationError, FixableError
from reasoning_gym_environment.evaluation.comparison import compare_samples

EVIL = "gcd\x1b[2J"


def samples(folder: Path, keys: dict[str, Any] | None = None, **recipe: Any) -> str:
    """A folder with one sample, of settings that have a name of their own; `keys` join its row."""
    row = {**item(1.0, task=EVIL, key="?").to_json(), **(keys or {})}
    row["recipe"] = {**row["recipe"], **recipe}
    folder.mkdir()
    write_dump(folder / "samples.jsonl", [row])
    (folder / "run.json").write_text(json.dumps({"settings": {EVIL: folder.name}}))
    return str(folder)


def test_names_from_files_are_shown_and_not_obeyed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare.main([samples(tmp_path / "a"), samples(tmp_path / "b")]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert 'gcd\\x1b[2J: "a" -> "b"' in shown
    assert shown.count("gcd\\x1b[2J") == 2


def test_evaluations_made_with_other_versions_of_the_library_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [samples(tmp_path / v, library_version=v) for v in ("0.1.24", "0.1.25")]
    assert compare.main(folders) == 0
    sentence = "The items were made with reasoning-gym 0.1.24 before and 0.1.25 after: "
    assert capsys.readouterr().out.count(sentence) == 1
    assert compare.main([*folders, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)["made_with"]
    assert made == {"before": ["0.1.24"], "after": ["0.1.25"]}


def test_an_evaluation_and_itself_are_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = samples(tmp_path / "a", library_version="0.1.24")
    other = samples(tmp_path / "b", library_version="0.1.25")
    for same in (first, f"{first}/samples.jsonl"):
        assert compare.main([first, same]) == 0
        line = f"{first} and {same} are the same evaluation"
        assert line in capsys.readouterr().out.splitlines()
    assert compare.main([first, other]) == 0
    assert "the same evaluation" not in capsys.readouterr().out


def test_what_differs_is_named_where_nothing_is_in_common(tmp_path: Path) -> None:
    folders = [samples(tmp_path / "a", seed=1), samples(tmp_path / "b", seed=2)]
    with pytest.raises(FixableError, match=r"differ in gcd\\x1b\[2J \(\"a\", \"b\"\)"):
        compare.main(folders)


def test_two_rules_of_what_is_solved_are_not_mixed(tmp_path: Path) -> None:
    older = samples(tmp_path / "older")
    newer = samples(tmp_path / "newer", {"scoring": {"solved_threshold": None}})
    with pytest.raises(
        FixableError, match=r"older counts scores from 0\.5 on .* `rescore` one"
    ):
        compare.main([older, newer])
    assert compare.main([newer, newer]) == 0


def test_what_a_set_lacks_is_named_and_the_rest_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, lacking = samples(tmp_path / "whole"), samples(tmp_path / "lacking")
    recipe = {"task": "futoshiki", "seed": 7, "level": None, "parameters": {}}
    missing = {"recipe": recipe, "difficulty": None, "reason": "it hangs\x1b[2J"}
    content = {"results": {}, "missing_items": [missing]}
    (tmp_path / "lacking" / "metrics.json").write_text(json.dumps(content))
    assert compare.main([whole, lacking]) == 0
    shown = capsys.readouterr().out
    assert "INCOMPLETE: the set of after lacks 1 items" in shown
    assert f"{json.dumps(recipe, sort_keys=True)}: it hangs\\x1b[2J" in shown
    assert compare.main([whole, lacking, "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)
    assert compared["missing_items"] == {"before": [], "after": [missing]}
    (tmp_path / "lacking" / "metrics.json").write_text('{"missing_items": 3}')
    with pytest.raises(FixableError, match=r"metrics\.json can't be read"):
        compare.main([whole, lacking])


def test_two_answer_formats_are_not_mixed(tmp_path: Path) -> None:
    rule: dict[str, Any] = {"solved_threshold": None}
    tags = samples(tmp_path / "tags", {"scoring": {**rule, "answer_format": "tags"}})
    older = samples(tmp_path / "older", {"scoring": rule})
    boxed = samples(tmp_path / "boxed", {"scoring": {**rule, "answer_format": "boxed"}})
    for before in (tags, older):
        with pytest.raises(FixableError, match=r'"tags".*"boxed".*`rescore`'):
            compare.main([before, boxed])
    assert compare.main([older, tags]) == compare.main([boxed, boxed]) == 0


def test_two_versions_of_the_rules_are_not_mixed(tmp_path: Path) -> None:
    rule: dict[str, Any] = {"solved_threshold": None}
    older = samples(tmp_path / "older", {"scoring": rule})
    newer = samples(tmp_path / "newer", {"scoring": {**rule, "scoring_version": 2}})
    with pytest.raises(FixableError, match=r"older was .* version 1 .* `rescore`"):
        compare.main([older, newer])
    assert compare.main([newer, newer]) == 0


def test_faulty_items_can_be_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = {"fault": {"kind": "false_label", "detail": "right: no"}}
    sound, faulty = samples(tmp_path / "sound"), samples(tmp_path / "faulty", fault)
    assert compare.main([sound, faulty]) == 0
    with pytest.raises(FixableError, match="no scored item in common"):
        compare.main([sound, faulty, "--without-faulty-items"])
    assert compare.main([sound, sound, "--without-faulty-items"]) == 0
    assert "0 faulty items left out" in capsys.readouterr().out


def test_evaluations_of_two_split_rules_are_not_mixed(tmp_path: Path) -> None:
    rules: dict[str, dict[str, Any]] = {
        "old": {},
        "new": {"split_rule": "question"},
    }
    for name, rule in rules.items():
        samples(tmp_path / name)
        settings = {"settings": {"eval_seed": 123, **rule}}
        (tmp_path / name / "run.json").write_text(json.dumps(settings))
    folders = [str(tmp_path / name) for name in ("old", "new")]
    with pytest.raises(FixableError, match=r"old was drawn by the rule seed.*question"):
        compare.main(folders)
    assert compare.main([folders[0], folders[0]]) == 0


def evaluated(folder: Path, **solved: list[int]) -> str:
    """A folder of a model that is named like it, with one item of a task for each 0 or 1."""
    rows = [
        item(float(score), task=task, key=f"{task} {number}").to_json()
        for task, scores in solved.items()
        for number, score in enumerate(scores)
    ]
    folder.mkdir()
    write_dump(folder / "samples.jsonl", rows)
    settings = {"settings": {"model_name": f"model {folder.name}"}}
    (folder / "run.json").write_text(json.dumps(settings))
    return str(folder)


def test_three_evaluations_are_one_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only items that all have count: the last has two less of one task."""
    folders = [
        evaluated(tmp_path / "base", gcd=[0] * 20, lcm=[1, 0] * 10),
        evaluated(tmp_path / "tuned", gcd=[1] * 20, lcm=[1, 0] * 10),
        evaluated(tmp_path / "other", gcd=[0] * 20, lcm=[0] * 18),
    ]
    assert compare.main(folders) == 0
    lines = capsys.readouterr().out.splitlines()
    assert 'tuned: model_name: "model base" -> "model tuned"' in lines
    rows = {line.split()[0]: line.split() for line in lines if line}
    assert rows["base"] == ["base", "model", "base", "38", "23.7%", "13.0", "-", "39.2"]
    assert rows["tuned"][3:5] == ["38", "76.3%"]
    assert rows["tuned"][8] == "+52.6"
    assert rows["tuned"][-2:] == ["beyond", "noise"]
    assert rows["other"][8] == "-23.7"
    assert rows["gcd"] == ["gcd", "20", "0.0%", "100.0%+", "0.0%"]
    assert rows["lcm"] == ["lcm", "18", "50.0%", "50.0%", "0.0%-"]
    assert "2 items of base that another lacks, 2 items of tuned" in lines[-1]

    assert compare.main([*folders, "--json"]) == 0
    tuned, other = json.loads(capsys.readouterr().out)["comparisons"]
    assert tuned["after"]["path"] == folders[1]
    assert tuned["settings"]["model_name"] == ["model base", "model tuned"]
    assert tuned["by_items"]["verdict"] == "beyond noise"
    assert tuned["by_items"]["significance"] == 0.05  # both differ beyond noise
    assert other["tasks"]["lcm"]["beyond_noise"] is True
    assert tuned["tasks"]["gcd"]["significance"] == 0.05 * 2 / 4


def test_the_folder_that_does_not_fit_is_named(tmp_path: Path) -> None:
    folders = [
        evaluated(tmp_path / "base", gcd=[0] * 6),
        evaluated(tmp_path / "tuned", gcd=[1] * 6),
        evaluated(tmp_path / "stranger", lcm=[1] * 6),
    ]
    with pytest.raises(FixableError, match=r"base and .*stranger have no scored item"):
        compare.main(folders)
    halves = [
        evaluated(tmp_path / "first", gcd=[1] * 2, lcm=[1] * 2),
        evaluated(tmp_path / "one", gcd=[1] * 2),
        evaluated(tmp_path / "two", lcm=[1] * 2),
    ]
    with pytest.raises(FixableError, match=r"in all of .*first, .*one, .*two: "):
        compare.main(halves)


def test_results_are_compared_in_python_as_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [
        evaluated(tmp_path / "base", gcd=[0] * 12, lcm=[1, 0] * 6),
        evaluated(tmp_path / "tuned", gcd=[1] * 12, lcm=[1, 0] * 6),
    ]
    [change] = compare_results(*map(read_results, folders))
    assert (change.before.path, change.after.model) == (folders[0], "model tuned")
    assert change.before.solved.value == change.by_items.before == 0.25
    assert change.tasks["gcd"].verdict == "beyond noise"
    compare.main([*folders, "--json"])
    compared = json.loads(capsys.readouterr().out)
    assert json.loads(json.dumps(change.to_json())).items() <= compared.items()
    with pytest.raises(ConfigurationError, match=r"got '.*base'.*read_results"):
        compare_results(*folders)  # type: ignore[arg-type]  # a newcomer's mistake


tasks_of_three = st.dictionaries(
    st.sampled_from("abcdef"),
    st.lists(st.tuples(*[st.integers(0, 1)] * 3), min_size=1, max_size=16),
    min_size=1,
)


@settings(deadline=None)
@given(tasks_of_three)
def test_an_interval_excludes_zero_exactly_where_the_verdict_says_so(
    tasks: dict[str, list[tuple[int, int, int]]],
) -> None:
    evaluations = [
        [
            item(float(scores[model]), task=task, key=f"{task} {number}")
            for task, items in tasks.items()
            for number, scores in enumerate(items)
        ]
        for model in range(3)
    ]
    for compared in (evaluations, evaluations[:2]):
        for comparison in compare_samples(*compared):
            for change in (comparison.by_items, *comparison.tasks.values()):
                _, _, low, high = change.difference
                assert (change.verdict == "beyond noise") == (low > 0 or high < 0)
                assert change.beyond_noise == (change.verdict == "beyond noise")
