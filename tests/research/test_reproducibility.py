"""Items are made in fresh processes with two hash seeds; the file lets the comparison go on."""

import json
import sys
from pathlib import Path

import pytest

from research.reproducibility import main

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.processes]


@pytest.mark.skipif(
    sys.version_info < (3, 11), reason="more tasks differ on Python 3.10"
)
async def test_what_differs_is_found_and_the_file_lets_the_comparison_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "items.jsonl"
    await main(file, 0)
    assert (file.read_text(), capsys.readouterr().out) == ("", "Counter()\n")
    earlier = json.dumps(["gcd", None, 2, ["the answer differs", "4 and 5"], None])
    file.write_text(f"{earlier}\n")
    await main(file, 10)
    first, *lines = file.read_text().splitlines()
    assert (first, len(lines)) == (earlier, 9)
    # `isomorphic_strings` draws from a set, whose order depends on the hash seed.
    [(place, task, level, (difference, _), under_the_same)] = [
        (place, task, level, found, same)
        for place, (task, level, _, found, same) in enumerate(
            map(json.loads, lines), start=1
        )
        if found
    ]
    assert (place, task, level, under_the_same) == (7, "isomorphic_strings", 2, None)
    assert difference == "the question differs in a process with another hash seed"
    counts = "Counter({'gcd': 1, 'isomorphic_strings': 1})"
    assert capsys.readouterr().out == f"10 items\n{counts}\n"
