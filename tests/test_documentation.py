"""What the documentation shows is what the code says."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_configuration_table_is_that_of_the_config_class() -> None:
    script = ROOT / "docs" / "configuration_table.py"
    checked = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def test_every_status_is_explained_in_the_readme() -> None:
    from reasoning_gym_environment.core.records import Status

    readme = (ROOT / "README.md").read_text()
    assert [status.value for status in Status if f"`{status.value}`" not in readme] == []
