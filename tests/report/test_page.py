"""The page as text: complete, self-contained, and safe with any model text."""

import base64
import json
import os
import re
import subprocess
import sys
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_files import row, write

from reasoning_gym_environment.cli import main
from reasoning_gym_environment.report.data import read_report_data
from reasoning_gym_environment.report.page import (
    clip,
    embed,
    embed_samples,
    fitting_length,
    thin_out,
)

ANYTHING = st.text(st.characters(codec=None)) | st.sampled_from(["</script>", "<!--", "]]>"])


class Outline(HTMLParser):
    """The elements of a page, and the addresses in it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]


def make_page(folder: Path, rows: list[dict[str, Any]]) -> str:
    output = folder / "report.html"
    assert main(["report", str(write(folder, rows)), "-o", str(output)]) == 0
    return output.read_text(encoding="utf-8")


@given(value=ANYTHING | st.lists(ANYTHING) | st.dictionaries(ANYTHING, ANYTHING))
def test_embedded_json_keeps_every_text_and_none_of_html(value: object) -> None:
    text = str(embed(value))
    assert json.loads(text) == value
    assert text.isascii()
    assert not set(text) & set("<>&")


def test_a_number_that_json_cannot_hold_is_not_embedded() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        embed(float("nan"))


def test_hostile_text_adds_nothing_to_the_page(tmp_path: Path) -> None:
    hostile = "</script></title><script>alert(1)</script><img src=x onerror=alert(1)>\x00\ud800"
    plain = make_page(tmp_path, [row([1.0], task="t", texts=["x"], oracle="x", question="x")])
    given = row([1.0], task=hostile, texts=[hostile], oracle=hostile, question=hostile)
    given["library_versions"] = {hostile: hostile}
    assert Outline(make_page(tmp_path, [given])).elements == Outline(plain).elements


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    page = make_page(tmp_path, [row([1.0, 0.0])])
    assert all(address.startswith("#") for address in Outline(page).addresses)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    assert "default-src &#39;none&#39;" in policy[1]
    assert "unsafe" not in policy[1]


def test_dumps_are_not_passed_off_as_the_whole_run(tmp_path: Path) -> None:
    rows = [row([1.0], number=n) for n in (0, 2, 4)]
    assert "a selection: 3 of the 5 groups of the run" in make_page(tmp_path, rows)
    del rows[0]["number"]
    assert "perhaps a selection: these rows" in make_page(tmp_path, rows)
    assert "all groups of the run" in make_page(tmp_path, [row([1.0])])
    assert "groups of the run" not in make_page(tmp_path, [row([1.0], evaluation=True)])


def test_the_error_for_a_missing_file_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "no-such\x1b.jsonl"]) == 2
    assert r"no-such\x1b.jsonl can't be read" in capsys.readouterr().err


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


def test_the_error_for_an_unwritable_page_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump = write(tmp_path, [row([1.0])])
    output = dump / "report.html"
    assert main(["report", str(dump), "-o", str(output)]) == 2
    assert f"{output} can't be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("dump", "says"),
    [("rollouts.jsonl", "must end in .html"), ("rollouts.html", "would overwrite the input")],
)
def test_a_page_replaces_no_rollouts(
    dump: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder").mkdir()
    path = write(tmp_path, [row([1.0])], dump)
    before = path.read_bytes()
    assert main(["report", str(path), "-o", str(tmp_path / "folder" / ".." / dump)]) == 2
    assert says in capsys.readouterr().err
    assert path.read_bytes() == before


def test_samples_hold_the_texts_as_they_were(tmp_path: Path) -> None:
    text = "<think>\ud800 hm</think>so <answer>4</answer>"
    data = read_report_data([write(tmp_path, [row([1.0], texts=[text], oracle=None)])])
    (chunk,) = embed_samples(data).chunks
    (group,) = json.loads(zlib.decompress(base64.b64decode(chunk)))
    assert group["oracle"] is None
    (rollout,) = group["rollouts"]
    assert rollout["thought"] == "\ud800 hm"
    assert (rollout["rest"], rollout["answer"]) == ("so <answer>4</answer>", "4")


def test_the_index_has_a_place_for_every_rollout(tmp_path: Path) -> None:
    rows = [row([1.0, 0.0], task="lcm"), row([None], task="gcd"), row([0.25])]
    index = embed_samples(read_report_data([write(tmp_path, rows)])).index
    assert index["tasks"] == ["gcd", "lcm"]
    assert (index["group_task"], index["group_size"]) == ([1, 0, 0], [2, 1, 1])
    assert index["status"] == ["solved", "wrong", "unscored", "wrong"]
    assert index["score"] == [1.0, 0.0, 0.0, 0.25]


@given(text=st.text(), longest=st.integers(2, 50))
def test_a_text_is_cut_in_the_middle_alone(text: str, longest: int) -> None:
    cut = clip(text, longest)
    assert (cut == text) == (len(text) <= longest)
    assert cut.startswith(text[: longest // 2])
    assert cut.endswith(text[-(longest // 2) :])


@given(lengths=st.lists(st.integers(0, 10**6), max_size=50))
def test_cut_texts_fit_together(lengths: list[int]) -> None:
    longest = fitting_length(lengths, most=100_000)
    assert sum(min(length, longest) for length in lengths) <= 100_000


def test_too_many_rollouts_are_thinned_out_evenly(tmp_path: Path) -> None:
    rows = [row([1.0, 0.0], number=number) for number in range(20)]
    kept = thin_out(list(read_report_data([write(tmp_path, rows)]).groups), most=10)
    assert [group.recipe.seed // 2 for group in kept] == [0, 4, 8, 12, 16]


def test_the_legend_of_chance_stands_only_where_chance_is_marked(tmp_path: Path) -> None:
    mark = "chance: solved by the best constant answer"
    other = "no reasoning: solved there by the best copy from the question"
    page = make_page(tmp_path, [row([1.0])])
    assert mark in page
    assert other in page
    page = make_page(tmp_path, [row([1.0], task="new_task")])
    assert mark not in page
    assert other not in page


def test_an_incomplete_evaluation_is_called_so_beside_its_figures(tmp_path: Path) -> None:
    items = [row([score], number=n, evaluation=True) for n, score in enumerate([1.0, 0.0, 0.0])]
    page = make_page(tmp_path, [*items, row([None], number=3, evaluation=True)])
    assert "<h2>Evaluation (incomplete)</h2>" in page
    assert ">of 3 scored items; 1 of 4 not scored, 95% interval " in page
    page = make_page(tmp_path, items)
    assert "<h2>Evaluation</h2>" in page
    assert "not scored" not in page
