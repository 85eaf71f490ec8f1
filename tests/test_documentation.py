"""What the documentation shows is what the code says."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from research import verifier_audit
from research.labels import check

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "reasoning_gym_environment"


@pytest.mark.processes
@pytest.mark.parametrize(
    "table",
    [
        "certificate_schema",
        "configuration_table",
        "failure_table",
        "task_table",
        "timeout_table",
    ],
)
def test_the_tables_are_those_of_the_code(table: str) -> None:
    script = ROOT / "docs" / f"{table}.py"
    checked = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(
    ("name", "render"), [("labels/labels", check), ("verifier-audit", verifier_audit)]
)
def test_the_pages_of_the_audits_are_those_of_their_data(
    name: str, render: ModuleType
) -> None:
    data = json.loads((ROOT / "research" / f"{name}.json").read_text(encoding="utf-8"))
    page = (ROOT / "research" / f"{name}.md").read_text(encoding="utf-8")
    assert page == render.as_markdown(data)


def test_the_gate_begins_with_the_commands_that_the_readme_offers() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [offered] = re.findall(r"^`(.+)` and `(.+)` make an environment", readme, re.M)
    gate = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert tuple(re.findall(r"^make .+", gate, re.M)[:2]) == offered


PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PATHS = sorted({*re.findall(r"`((?:[a-z_]+/)+[a-z_]*(?:\.\w+)?|[a-z_]+\.py)`", PAGE)})


@pytest.mark.parametrize("path", PATHS)
def test_what_the_map_names_is_there(path: str) -> None:
    """Paths are relative to the repository or to the package; `a/b` may leave out `.py`."""
    places = [
        folder / f"{path}{end}" for folder in (ROOT, PACKAGE) for end in ("", ".py")
    ]
    assert any(place.exists() for place in places)


@pytest.mark.parametrize(
    "folder", sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
)
def test_every_package_is_on_the_map_and_says_what_is_in_it_and_what_is_not(
    folder: str,
) -> None:
    assert f"`{folder}/`" in PAGE
    said = ast.get_docstring(ast.parse((PACKAGE / folder / "__init__.py").read_text()))
    assert len(re.findall(r"\.(?:\s|$)", said or "")) >= 2


def test_every_status_is_explained() -> None:
    from reasoning_gym_environment.records import Status

    page = (ROOT / "docs" / "scoring.md").read_text()
    assert [
        status.value for status in Status if f"| `{status.value}` |" not in page
    ] == []


def test_every_field_of_a_certificate_is_explained() -> None:
    from reasoning_gym_environment.proof.certificate import json_schema

    page = (ROOT / "docs" / "certificate.md").read_text(encoding="utf-8")
    definitions = json_schema()["$defs"].values()
    names = {name for one in definitions for name in one["properties"]}
    assert sorted(name for name in names if f"`{name}`" not in page) == []


def test_everything_that_is_stored_or_exported_is_explained() -> None:
    from stored_values import attempt, stored

    from reasoning_gym_environment.storage.export import dpo_rows, record_rows, sft_rows
    from reasoning_gym_environment.storage.rows import StoredGroup

    row = stored(attempt(1.0), attempt(0.0))
    group = StoredGroup.from_json(row)
    names = {*row, *row["rollouts"][0], *StoredGroup.__struct_encode_fields__}
    names -= {"(file)", "(other)"}
    names |= {
        key
        for rows in (sft_rows, dpo_rows, record_rows)
        for i in rows(group)
        for key in i.row
    }
    page = (ROOT / "docs" / "data.md").read_text()
    assert sorted(name for name in names if f"`{name}`" not in page) == []
