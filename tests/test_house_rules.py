"""House rules that no linter checks: docstrings, reasons for exemptions, swallowed failures."""

import ast
import io
import re
import runpy
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

LEAST_DOCUMENTED = 0.91
"""Share of the public names with a docstring."""

PACKAGE_FILES = sorted((ROOT / "reasoning_gym_environment").rglob("*.py"))
ALL_FILES = [
    *PACKAGE_FILES,
    *sorted(
        path
        for folder in ("tests", "benchmarks", "research")
        for path in (ROOT / folder).rglob("*.py")
    ),
]

EXEMPTION = re.compile(
    r"(?:noqa(?::\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*)?|type:\s*ignore(?:\[[\w\-, ]*\])?)(?P<reason>.*)"
)
REASON = re.compile(r"\w+\W+\w+")
HEADING = re.compile(r"(Args|Attributes|Example|Raises|Returns):")
SENTENCE_ENDS = tuple(".:…")
EVERYTHING = {"Exception", "BaseException"}


def violations(
    files: list[Path], rule: Callable[[str], Iterable[object]]
) -> dict[str, list[object]]:
    """What a rule finds in each file's source; files without a finding are left out."""
    found = {path: [*rule(path.read_text(encoding="utf-8"))] for path in files}
    return {str(path.relative_to(ROOT)): each for path, each in found.items() if each}


def unexplained_exemptions(source: str) -> list[str]:
    """Comments that silence a checker and give no reason on their line."""
    if not EXEMPTION.search(source):
        return []  # most files, without the time to split them into tokens
    return [
        token.string
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
        for exemption in EXEMPTION.finditer(token.string)
        if not REASON.search(exemption["reason"])
    ]


def catches_everything(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    caught = (
        handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    )
    return any(
        isinstance(error, ast.Name) and error.id in EVERYTHING for error in caught
    )


def swallowed_failures(source: str) -> Iterator[int]:
    """Lines of handlers that catch everything, raise nothing and don't say why (BLE001)."""
    if not re.search(r"except\s*:|Exception", source):
        return  # most files, without the time to parse them
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler) and catches_everything(node):
            raises = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
            if not raises and "noqa: BLE001" not in lines[node.lineno - 1]:
                yield node.lineno


def unsaid(source: str) -> list[str]:
    """First paragraphs of docstrings that are a heading or no sentence; "" for a missing one.

    A module needs one; what is below it may do without.
    """
    tree = ast.parse(source)
    documented = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, documented)]
    texts = [
        ast.get_docstring(tree) or "",
        *filter(None, map(ast.get_docstring, nodes)),
    ]
    firsts = [text.partition("\n\n")[0] for text in texts]
    return [
        first
        for first in firsts
        if HEADING.match(first) or first[-1:] not in SENTENCE_ENDS
    ]


def test_every_docstring_begins_with_a_sentence() -> None:
    assert violations(PACKAGE_FILES, unsaid) == {}


def test_public_names_are_documented_and_functions_annotated() -> None:
    sizes = runpy.run_path(str(ROOT / "benchmarks/codebase.py"))["sizes"](ROOT)
    assert sizes.documented >= LEAST_DOCUMENTED
    assert sizes.annotated == 1


def bound_again(source: str) -> list[str]:
    """Names that a module binds more than once: the last value is that of all functions."""
    body = ast.parse(source).body
    bound = [node.target for node in body if isinstance(node, ast.AnnAssign)]
    bound += [
        target
        for node in body
        if isinstance(node, ast.Assign)
        for target in node.targets
    ]
    names = Counter(target.id for target in bound if isinstance(target, ast.Name))
    return [name for name, times in names.items() if times > 1]


def test_no_module_binds_a_name_again() -> None:
    assert bound_again("A = 1\nB: int = 2\nA = 3") == ["A"]
    assert violations(PACKAGE_FILES, bound_again) == {}


def test_only_what_is_shown_or_stored_reads_the_clock_that_people_set() -> None:
    """It jumps; whatever waits or measures uses the monotonic one."""

    def reads(source: str) -> list[str]:
        return re.findall(r"\btime\.time(?:_ns)?\(\)", source)

    assert violations(PACKAGE_FILES, reads) == {
        # A key of its replies.
        "reasoning_gym_environment/demo/server.py": ["time.time()"],
        # Shown: a pause's end.
        "reasoning_gym_environment/inference/rate_limit.py": ["time.time()"],
        # Compared with rows'.
        "reasoning_gym_environment/report/live.py": ["time.time()"] * 2,
        "reasoning_gym_environment/report/page.py": ["time.time()"],
    }


def test_every_exemption_from_a_checker_has_its_reason() -> None:
    assert violations(ALL_FILES, unexplained_exemptions) == {}


def test_no_failure_is_swallowed_without_a_reason() -> None:
    assert violations(ALL_FILES, swallowed_failures) == {}


@pytest.mark.parametrize("reason", ["", "  ", " - x", " # ok", " F401"])
@pytest.mark.parametrize(
    "exemption",
    ["noqa", "noqa: F401", "noqa: F401, E501", "type: ignore", "type: ignore[misc]"],
)
def test_an_exemption_without_a_reason_is_found(exemption: str, reason: str) -> None:
    assert unexplained_exemptions(f"x = 1  # {exemption}{reason}\n")
    assert not unexplained_exemptions(
        f"x = 1  # {exemption} - the library is untyped\n"
    )


@pytest.mark.parametrize(
    "caught", ["", " Exception", " BaseException", " (OSError, Exception)"]
)
def test_a_swallowed_failure_is_found(caught: str) -> None:
    begin = f"try:\n    f()\nexcept{caught}:"
    assert list(swallowed_failures(f"{begin}\n    pass\n")) == [3]
    assert not list(swallowed_failures(f"{begin}\n    raise\n"))
    assert not list(
        swallowed_failures(f"{begin}  # noqa: BLE001 - it is counted\n    pass\n")
    )
    named = f"try:\n    f()\nexcept OSError:\n    pass\n{begin}\n    raise\n"
    assert not list(swallowed_failures(named)), "a named failure may be handled"


def test_a_docstring_that_says_nothing_is_found() -> None:
    assert unsaid("x = 1\n") == [""]
    assert unsaid(
        '"""A module."""\ndef f():\n    """Example:\n    >>> 1\n    1\n    """\n'
    )
    assert unsaid('"""A module."""\nclass A:\n    """nothing much"""\n') == [
        "nothing much"
    ]
    assert not unsaid(
        '"""A module."""\ndef f():\n    """Do it.\n\n    Raises:\n    """\n'
    )
