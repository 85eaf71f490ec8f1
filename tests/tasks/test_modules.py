"""The digest of a module covers what its tasks may depend on, and nothing beside it."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reasoning_gym_environment.tasks.modules import _digest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    files = {
        "digested_file.py": "def f():\n    import digested_helper, json, digested_broken\n"
        "    from digested_folder import words",
        "digested_helper.py": "",
        "digested_folder/words.py": "from .more import *\nfrom ... import outside",
        "digested_folder/more.py": "",
        "digested_folder/other.py": "",
        "digested_broken.py": "(",
        "digested_beside.py": "",
        "digested_package/__init__.py": "",
        "digested_package/sub/words.txt": "",
        "digested_package/mine.proof.json": "",
        "digested_package/.cache/x": "",
        "digested_package/__pycache__/x.pyc": "",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("digested_")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "covered", "beside"),
    [
        (
            "digested_file",
            [
                f"digested_{x}.py"
                for x in ("helper", "folder/more", "folder/words", "file")
            ],
            ["digested_beside.py", "digested_folder/other.py"],
        ),
        (
            "digested_package",
            ["digested_package/__init__.py", "digested_package/sub/words.txt"],
            [
                f"digested_package/{x}"
                for x in ("mine.proof.json", ".cache/x", "__pycache__/x.pyc")
            ],
        ),
    ],
)
def test_a_digest_changes_with_its_files_alone(
    folder: Path, name: str, covered: list[str], beside: list[str]
) -> None:
    module = importlib.import_module(name)
    digest = _digest(module)
    for path in beside:
        (folder / path).write_text("changed = 1")
    assert _digest(module) == digest
    for path in covered:
        (folder / path).write_text("changed = 1")
        assert _digest(module) != digest
        digest = _digest(module)


def test_of_large_packages_the_rest_counts_by_its_size(folder: Path) -> None:
    module = importlib.import_module("digested_package")
    with (folder / "digested_package" / "z.bin").open("wb") as file:
        file.truncate(2**30)
    digest = _digest(module)
    with (folder / "digested_package" / "z.bin").open("r+b") as file:
        file.write(b"1")
        assert _digest(module) == digest
        file.truncate(2**30 + 1)
    assert _digest(module) != digest
