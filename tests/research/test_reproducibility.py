"""Items are made in fresh processes with two hash seeds; the file lets the comparison go on."""

import json
from pathlib import Path

import pytest

from research.reproducibility import main

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.processes]


async def test_what_differs_is_found_and_a_second_run_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "items.jsonl"
    await main(file, 10)
    lines = file.read_text().splitlines()
    # `isomorphic_strings` draws from a set, whose order depends on the hash seed.
    [(task, level, _, (difference, _), under_the_same)] = [
        line for line in map(json.loads, lines) if line[3]
    ]
    assert (task, level, under_the_same) == ("isomorphic_strings", 2, None)
    assert difference == "the question differs in a process with another hash seed"
    assert capsys.readouterr().out == "10 items\nCounter({'isomorphic_strings': 1})\n"
    await main(file, 12)
    assert file.read_text().splitlines()[:10] == lines
    assert len(file.read_text().splitlines()) == 12
