"""What the documentation shows is what the code says."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.processes
def test_the_configuration_table_is_that_of_the_config_class() -> None:
    script = ROOT / "docs" / "configuration_table.py"
    checked = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def test_every_status_is_explained_in_the_readme() -> None:
    from reasoning_gym_environment.records import Status

    readme = (ROOT / "README.md").read_text()
    assert [status.value for status in Status if f"`{status.value}`" not in readme] == []


def test_everything_that_is_stored_or_exported_is_explained() -> None:
    from stored_values import attempt, stored

    from reasoning_gym_environment.storage.training_rows import (
        DPO_COLUMNS,
        RECORD_COLUMNS,
        SFT_COLUMNS,
    )

    row = stored(attempt(1.0))
    names = {*row, *row["rollouts"][0], *SFT_COLUMNS, *DPO_COLUMNS, *RECORD_COLUMNS}
    page = (ROOT / "docs" / "data.md").read_text()
    assert sorted(name for name in names if f"`{name}`" not in page) == []
