"""The page as text: complete, self-contained, and safe with any model text."""

import base64
import json
import os
import re
import subprocess
import sys
import zlib
from dataclasses import fields
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from invented_run import write_invented_evaluations
from report_files import row, write

from reasoning_gym_environment.cli import main
from reasoning_gym_environment.report.data import read_report_data
from reasoning_gym_environment.report.page import (
    clip,
    embed,
    fitting_length,
    live_page,
    pack,
    row_of,
    thin_out,
    write_report,
)
from reasoning_gym_environment.scoring.extraction import AnswerFormat
from reasoning_gym_environment.scoring.grading import ScoreMode, ScoringSettings

ANYTHING = st.text(st.characters(codec=None)) | st.sampled_from(
    ["</script>", "<!--", "]]>"]
)


class Outline(HTMLParser):
    """The elements of a page, and the addresses in it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.addresses += [
            value or "" for name, value in attrs if name in ("src", "href")
        ]


def make_page(folder: Path, rows: list[dict[str, Any]]) -> str:
    output = folder / "report.html"
    files = [str(write(folder, rows)), "-o", str(output)]
    assert main(["report", *files, "--force"]) == 0
    return output.read_text(encoding="utf-8")


def unpack(packed: str) -> Any:
    return json.loads(zlib.decompress(base64.b64decode(packed)))


def index_of(page: str) -> Any:
    found = re.search(r'id="index">([^<]+)<', page)
    assert found is not None
    return unpack(found[1])


@given(value=ANYTHING | st.lists(ANYTHING) | st.dictionaries(ANYTHING, ANYTHING))
def test_packed_data_keeps_every_text_and_none_of_html(value: object) -> None:
    text = pack(value)
    assert unpack(text) == value
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", text)


def test_a_number_that_json_cannot_hold_is_not_packed() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        pack(float("nan"))


def test_hostile_text_adds_nothing_to_the_page(tmp_path: Path) -> None:
    hostile = "</script></title><script>alert(1)</script><img src=x onerror=alert(1)>\x00\ud800"
    plain = make_page(
        tmp_path, [row([1.0], task="t", texts=["x"], oracle="x", question="x")]
    )
    given = row([1.0], task=hostile, texts=[hostile], oracle=hostile, question=hostile)
    given["library_versions"] = {hostile: hostile}
    assert Outline(make_page(tmp_path, [given])).elements == Outline(plain).elements


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    page = make_page(tmp_path, [row([1.0, 0.0])])
    assert {each for each in Outline(page).addresses if not each.startswith("#")} == {
        "data:,"
    }
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert "connect-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]


def test_the_live_page_connects_to_its_own_server_alone() -> None:
    page = live_page()
    assert "connect-src 'self'" in page
    assert 'data-source="http"' in page
    assert not re.search(r'<script type="text/plain"', page)


def test_dumps_are_not_passed_off_as_the_whole_run(tmp_path: Path) -> None:
    def said(rows: list[dict[str, Any]]) -> str:
        (run,) = index_of(make_page(tmp_path, rows))["runs"]
        return str(dict(run["header"])["groups"])

    rows = [row([1.0], number=n) for n in (0, 2, 4)]
    assert said(rows) == "a selection: 3 of 5"
    del rows[0]["number"]
    assert "perhaps a selection: these rows" in said(rows)
    assert said([row([1.0])]) == "all 1"


@pytest.mark.processes
def test_a_command_whose_output_pipe_is_closed_exits_quietly(tmp_path: Path) -> None:
    files = [str(write(tmp_path, [row([1.0])])), "-o", str(tmp_path / "report.html")]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "reasoning_gym_environment", "report", *files],
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_error_names_the_file_that_cannot_be_read_or_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "no-such\x1b.jsonl"]) == 2
    assert r"no-such\x1b.jsonl can't be read" in capsys.readouterr().err
    dump = write(tmp_path, [row([1.0])])
    assert main(["report", str(dump), "-o", str(dump / "report.html")]) == 2
    assert f"{dump / 'report.html'} can't be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("dump", "says"),
    [
        ("rollouts.jsonl", "must end in .html"),
        ("rollouts.html", "would overwrite the input"),
    ],
)
def test_a_page_replaces_no_rollouts(
    dump: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder").mkdir()
    path = write(tmp_path, [row([1.0])], dump)
    before = path.read_bytes()
    assert (
        main(["report", str(path), "-o", str(tmp_path / "folder" / ".." / dump)]) == 2
    )
    assert says in capsys.readouterr().err
    assert path.read_bytes() == before


def test_a_page_is_replaced_on_demand_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_page(tmp_path, [row([1.0])])
    (tmp_path / "report.html").write_text("mine")
    command = ["report", str(write(tmp_path, [row([1.0])])), "-o"]
    command += [str(tmp_path / "report.html")]
    assert main(command) == 2
    assert f"{tmp_path / 'report.html'} exists; --force" in capsys.readouterr().err
    assert (tmp_path / "report.html").read_text() == "mine"
    assert main([*command, "--force"]) == 0
    assert (tmp_path / "report.html").read_text() != "mine"


def test_chunks_hold_the_rows_as_they_were(tmp_path: Path) -> None:
    given = row(
        [1.0], texts=["<think>\ud800 hm</think>so <answer>4</answer>"], oracle=None
    )
    index, chunks = embed(read_report_data([write(tmp_path, [given])]))
    (identifier,) = index["groups"]["id"]
    assert unpack(pack(chunks[0])) == {identifier: given}


def test_every_group_stands_in_the_index_and_its_texts_in_a_chunk(
    tmp_path: Path,
) -> None:
    rows = [row([1.0, 0.0], number=number) for number in range(60)]
    index, chunks = embed(read_report_data([write(tmp_path, rows)]))
    assert index["groups"]["at"] == [number // 25 for number in range(60)]
    assert [len(chunk) for chunk in chunks] == [25, 25, 10]


def test_a_row_that_lost_text_says_so(tmp_path: Path) -> None:
    (group,) = read_report_data(
        [write(tmp_path, [row([1.0], texts=["x" * 500])])]
    ).groups
    assert row_of(group, 500) == group.to_json()
    cut = row_of(group, 100)
    assert cut["cut"]
    assert "400 characters omitted" in cut["rollouts"][0]["conversation"][-1]["content"]


@given(text=st.text(), longest=st.integers(2, 50))
def test_a_text_is_cut_in_the_middle_alone(text: str, longest: int) -> None:
    cut = clip(text, longest)
    assert (cut == text) == (len(text) <= longest)
    assert cut.startswith(text[: longest // 2])
    assert cut.endswith(text[-(longest // 2) :])


@given(lengths=st.lists(st.integers(0, 10**6), max_size=50))
def test_cut_texts_fit_together(lengths: list[int]) -> None:
    longest = fitting_length(lengths, max_characters=100_000)
    assert sum(min(length, longest) for length in lengths) <= 100_000


def test_too_many_rollouts_are_thinned_out_evenly(tmp_path: Path) -> None:
    rows = [row([1.0, 0.0], number=number) for number in range(20)]
    kept = thin_out(
        list(read_report_data([write(tmp_path, rows)]).groups), max_rollouts=10
    )
    assert [group.recipe.seed // 2 for group in kept] == [0, 4, 8, 12, 16]


def test_a_runs_health_stands_in_the_page(tmp_path: Path) -> None:
    rows = [row([0.0] * 4, number=number) for number in range(20)]
    (run,) = index_of(make_page(tmp_path, rows))["runs"]
    assert any("all unsolved" in each["text"] for each in run["health"])


def test_the_command_that_scores_again_has_every_setting_of_scores() -> None:
    script = re.search(r"const RESCORING = (\[.*?\]);", live_page(), re.DOTALL)
    assert script is not None
    assert re.findall(r'"(\w+)"', script[1]) == [
        field.name for field in fields(ScoringSettings)
    ]


def test_the_command_that_scores_again_takes_every_word_of_a_setting() -> None:
    pattern = re.search(r"/\^(.*)\$/\.test\(value\)", live_page())
    assert pattern is not None
    for word in (*get_args(AnswerFormat), *get_args(ScoreMode)):
        assert re.fullmatch(pattern[1], word)
    for unsafe in ("-x", "a b", "$(x)", "a;b", "a\n"):
        assert not re.fullmatch(pattern[1], unsafe)


def test_evaluations_of_two_answer_formats_are_not_compared(tmp_path: Path) -> None:
    folders = write_invented_evaluations(tmp_path, steps=(0, 10), items=1)
    samples = folders[1] / "samples.jsonl"
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    for sample in rows:
        sample["scoring"] = {**sample.get("scoring", {}), "answer_format": "boxed"}
    samples.write_text("".join(json.dumps(sample) + "\n" for sample in rows))
    write_report([tmp_path], tmp_path / "report.html")
    index = index_of((tmp_path / "report.html").read_text())
    assert any("(boxed)" in run["rules"] for run in index["runs"])
    assert all(not pair["by_difficulty"] for pair in index["pairs"])


def test_a_page_has_the_pairs_of_the_first_evaluation_and_the_last_ones(
    tmp_path: Path,
) -> None:
    steps = range(0, 80, 10)
    write_invented_evaluations(tmp_path, steps=steps, difficulties=(None,), items=1)
    write_report([tmp_path], tmp_path / "report.html")
    pairs = index_of((tmp_path / "report.html").read_text())["pairs"]
    embedded = {
        int(pair[side][-2:].strip("-"))
        for pair in pairs
        for side in ("before", "after")
    }
    assert embedded == {0, 30, 40, 50, 60, 70}
    assert len(pairs) == 15
