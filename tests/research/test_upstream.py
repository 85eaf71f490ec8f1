"""The comparison with upstream's environment: its table, and what it refuses to start."""

from pathlib import Path
from typing import Any

import pytest
from page_blocks import ROOT

from research.upstream_serve import load


def result(arm: str, seed: int, share: float) -> dict[str, Any]:
    """A run's result, as `upstream.run` returns it."""
    shares = {"sound items": {"all": share, "gcd": share}}
    return {
        "arm": arm,
        "seed": seed,
        "steps": 40 + seed,
        "groups": 100,
        "mixed": 50,
        "interrupted": 1,
        "solved": {"rollouts": shares},
    }


def test_the_table_pairs_arms_by_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "research"))
    from research.upstream_results import table

    results = [
        *(result("upstream", seed, 0.3 + seed / 10) for seed in (1, 2, 3)),
        *(result("ours", seed, 0.32 + seed / 10) for seed in (1, 2)),
    ]
    begin = {"sound items": {"all": 0.25, "gcd": 0.25}}
    lines = table(results, begin, ["upstream", "ours", "signal"]).splitlines()
    rows = [line.split() for line in lines]
    assert rows[1] == ["all", "gcd", "all", "-", "upstream"]
    assert rows[2] == ["cold", "start", "0.250", "0.250"]
    assert rows[3][:4] == ["upstream", "0.500", "±", "0.248"]
    assert rows[4][-3:] == ["0.020", "±", "0.000"]
    assert ["ours", "41.500", "±", "6.353", "200", "0.500", "0.010"] in rows
    assert not any("signal" in line for line in lines)


def test_a_module_without_the_rule_that_is_changed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("class ReasoningGymEnv: ...")
    with pytest.raises(SystemExit, match=r"module.py has no longer the line "):
        load(tmp_path / "module.py")
