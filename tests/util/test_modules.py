"""A user's module is found by its name or path, and not imported where it is found."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from reasoning_gym_environment.errors import ConfigurationError, WorkerStartError
from reasoning_gym_environment.util import modules
from reasoning_gym_environment.util.modules import find_module, import_module
from reasoning_gym_environment.util.values import describe_origin


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the tests, with modules that must not be imported."""
    (tmp_path / "package" / "inner").mkdir(parents=True)
    for name in (
        "mine.py",
        "not-a-name.py",
        "package/__init__.py",
        "package/inner/__init__.py",
    ):
        (tmp_path / name).write_text("raise AssertionError('imported')")
    (tmp_path / "notes.txt").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("entry", "name", "file"),
    [
        ("./mine.py", "mine", "mine.py"),
        ("mine.py", "mine", "mine.py"),
        ("../{name}/mine.py", "mine", "mine.py"),
        ("./package", "package", "package/__init__.py"),
        ("package/", "package", "package/__init__.py"),
        ("package/__init__.py", "package", "package/__init__.py"),
        ("package/inner/__init__.py", "package.inner", "package/inner/__init__.py"),
        ("package/inner/", "package.inner", "package/inner/__init__.py"),
        ("{folder}/mine.py", "mine", "mine.py"),
    ],
)
def test_a_path_gives_the_name_of_a_module(
    folder: Path, entry: str, name: str, file: str
) -> None:
    found = find_module(entry.format(folder=folder, name=folder.name), "task_modules")
    assert (found.name, found.shown, found.folder) == (
        name,
        str(folder / file),
        str(folder),
    )
    assert found.search_path[0] == str(folder)


def test_a_name_is_found_as_programs_find_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(folder)
    for name in ("mine", "package", "package.inner"):
        assert find_module(name, "task_modules").search_path[0] == str(folder)
        assert name not in sys.modules


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("mine", r"^task_modules: there is no module mine: write \./mine\.py$"),
        ("package.inner", r"there is no module package.inner: write \./package/inner$"),
        ("absent", "there is no module absent: install it, or write its path$"),
        ("./absent.py", "there is no Python file .*/absent.py$"),
        ("./notes.txt", "there is no Python file .*/notes.txt$"),
        ("./not-a-name.py", "modules that Python can import.*got './not-a-name.py'$"),
        (
            "a b",
            "modules that Python can import, by name such as my_module or path .*got 'a b'$",
        ),
        ("", "modules that Python can import.*got ''$"),
        ("__main__", "the running program or notebook, .*such as ./my_module.py$"),
    ],
)
def test_what_no_worker_can_import_is_refused(
    folder: Path, entry: str, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        find_module(entry, "task_modules")


@pytest.mark.parametrize(
    ("entry", "path"), [("mine", "mine.py"), ("package", "package")]
)
def test_what_only_this_process_inherits_is_named_by_its_path(
    folder: Path, monkeypatch: pytest.MonkeyPatch, entry: str, path: str
) -> None:
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", f"/nowhere:{folder}")
    spec = importlib.util.find_spec(entry)
    assert spec is not None
    for loaded in ({}, {entry: importlib.util.module_from_spec(spec)}):
        for name, module in loaded.items():
            monkeypatch.setitem(sys.modules, name, module)
        with pytest.raises(
            ConfigurationError, match=f"by PYTHONPATH.*path, {folder / path}$"
        ):
            find_module(entry, "task_modules")
    monkeypatch.setitem(sys.modules, "by_hand", ModuleType("by_hand"))
    with pytest.raises(
        ConfigurationError, match="there is no module by_hand: install it"
    ):
        find_module("by_hand", "task_modules")
    assert find_module("./mine.py", "task_modules").name == "mine"


def test_a_file_that_is_named_like_another_module_is_not_taken_for_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (folder / "json.py").write_text("")
    said = r"json.py is named like .*json/__init__\.py: rename it"
    with pytest.raises(WorkerStartError, match=said):
        import_module(find_module("./json.py", "task_modules"))


@pytest.mark.parametrize("folder", ["importlib_tasks", "{package}_tasks"])
def test_the_line_of_an_error_is_named_wherever_a_users_code_stands(
    folder: str,
) -> None:
    file = folder.format(package=Path(modules.__file__).parents[1]) + "/mine.py"
    with pytest.raises(ZeroDivisionError) as raised:
        exec(compile("\n1 / 0", file, "exec"))
    assert describe_origin(raised.value).endswith(f" ({file}, line 2)")
