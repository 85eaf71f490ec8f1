"""What differs between the installed reasoning-gym and another version: items, labels, scores.

The same worker answers for each version, in its own interpreter, on the same recipes and probes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import ROUND_CEILING, Decimal
from enum import Enum
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import reasoning_gym_environment
from reasoning_gym_environment.errors import FixableError
from reasoning_gym_environment.problems.seeds import evaluation_recipes
from reasoning_gym_environment.proof.findings import constants_for, probes_for
from reasoning_gym_environment.tasks.catalogue import require_known
from reasoning_gym_environment.tasks.facts import LIBRARY
from reasoning_gym_environment.tasks.recipes import VERSION
from reasoning_gym_environment.util.progress import with_progress
from reasoning_gym_environment.util.values import shorten

logger = logging.getLogger(__name__)

_SEED = 4
_PACKAGE = Path(reasoning_gym_environment.__file__).parent
_WORKER = Path(__file__).with_name("version_worker.py")
_START_SECONDS = 300.0
_TASK_SECONDS = 120.0
_LINE_BYTES = 2**28
_SCORER = "score_answer"
_SHOWN = 3
_EXCERPT = 60


class Kind(str, Enum):
    """What differs, the worst first."""

    PAYS_MORE = "pays more than before for a wrong answer"
    GONE = "task is gone"
    NEW = "task is new"
    PARAMETERS = "parameters differ"
    LEVELS = "levels differ"
    FAILED = "can't be compared"
    GENERATION = "items can be made in one version only"
    QUESTION = "questions differ"
    LABEL = "labels differ for the same question"
    SCORE = "scores differ"


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One difference of a task.

    Attributes:
        detail: such as the scorer and the probe.
        items: that differ, of `of`; 0 if the difference is the task's.
        before, after: in the installed version and in the other one, of the first such item.
        recipe: of that item, as JSON.
    """

    task: str
    kind: Kind
    detail: str = ""
    items: int = 0
    of: int = 0
    before: str = ""
    after: str = ""
    recipe: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionAudit:
    """All differences between two versions.

    Attributes:
        dependencies: the library's dependencies with another version: before and after.
        items: that were made and scored in both.
    """

    before: str
    after: str
    dependencies: Mapping[str, tuple[str, str]]
    tasks: int
    items: int
    differences: Sequence[Difference]


@dataclass(frozen=True, kw_only=True, slots=True)
class Interpreter:
    """A Python that imports one version of the library.

    Attributes:
        folder: which has the library; None if it is installed.
        inherits_path: whether `PYTHONPATH` holds.
    """

    python: str = sys.executable
    folder: Path | None = None
    inherits_path: bool = True


def other_interpreter(against: str, folder: Path) -> Interpreter:
    """Install a version of the library into a virtual environment, and return its interpreter.

    A folder that has the package `reasoning_gym` and no `pyproject.toml` is used as it is, with
    the installed dependencies.

    Args:
        against: a version, a path of a checkout or archive, or a requirement as pip reads it.
        folder: of the environment; made if it does not exist.

    Raises:
        FixableError: it can't be installed.
    """
    path = Path(against)
    if (path / "reasoning_gym" / "__init__.py").exists() and not (
        path / "pyproject.toml"
    ).exists():
        return Interpreter(folder=path.resolve())
    requirement = str(path.resolve()) if path.exists() else against
    if VERSION.fullmatch(against):
        requirement = f"{LIBRARY}=={against}"
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    logger.info("Installing %s into the virtual environment %s", requirement, folder)
    if not python.exists():
        _run(
            [sys.executable, "-m", "venv", str(folder)],
            f"{folder}: no virtual environment",
        )
    pip = [
        str(python),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
    ]
    _run([*pip, "--", requirement], f"{requirement}: pip can't install it")
    return Interpreter(python=str(python), inherits_path=False)


def _run(command: Sequence[str], failure: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or [
            f"exit {done.returncode}"
        ]
        said = next(
            (line for line in reversed(lines) if line.startswith("ERROR")), lines[-1]
        )
        raise FixableError(
            f"{failure} ({said}); give a version, a path or a pip requirement"
        )


class VersionWorker:
    """The worker of one version; it is started again after a request that failed.

    Args:
        package: a folder with copies of the package and of the worker.
    """

    def __init__(self, interpreter: Interpreter, package: Path) -> None:
        folders = [str(package)]
        if interpreter.folder is not None:
            folders.append(str(interpreter.folder))
        if interpreter.inherits_path and "PYTHONPATH" in os.environ:
            folders.append(os.environ["PYTHONPATH"])
        self._environment = {
            **os.environ,
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": os.pathsep.join(folders),
        }
        self._python = interpreter.python
        self._folder = package
        self._process: asyncio.subprocess.Process | None = None

    async def ask(self, request: Mapping[str, Any], timeout: float) -> Any:
        """Return the reply.

        Raises:
            ChildProcessError: the worker died or took too long; the message says which.
        """
        if self._process is None:
            self._process = await self._start()
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            line = await asyncio.wait_for(process.stdout.readline(), timeout)
            return json.loads(line)
        except asyncio.TimeoutError:
            await self.close()
            raise ChildProcessError(f"takes longer than {timeout:g} s") from None
        except (OSError, ValueError):
            await self.close()
            log = (self._folder / "stderr").read_text(errors="replace").strip()
            said = log.splitlines()[-1:] or ["the process died"]
            raise ChildProcessError(shorten(said[0])) from None

    async def _start(self) -> asyncio.subprocess.Process:
        with (self._folder / "stderr").open("wb") as log:
            return await asyncio.create_subprocess_exec(
                *(self._python, "-m", _WORKER.stem),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment,
                cwd=self._folder,
                limit=_LINE_BYTES,
            )

    async def close(self) -> None:
        """Kill the process."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
            self._process = None


class Tried(NamedTuple):
    """An answer whose scores are compared."""

    name: str
    answer: str
    is_right: bool


_NUMBER = re.compile(r"-?\d{1,30}(\.\d{1,30})?")


def near_answers(oracle: str) -> list[Tried]:
    """Return numbers near the right one, and the right answer in forms that a scorer may accept.

    Example:
        >>> [tried.answer for tried in near_answers("12345")][:4]
        ['12400', '12345.6', '12468.45', '-12345']
    """
    forms = {r"\text{x}": rf"\text{{{oracle}}}", r"\(x\)": rf"\({oracle}\)"}
    forms["other case"] = oracle.swapcase()
    right = [
        Tried(f"form {label!r}", text, is_right=True)
        for label, text in forms.items()
        if text != oracle
    ]
    if not _NUMBER.fullmatch(oracle):
        return right
    number = Decimal(oracle)
    unit = Decimal(10) ** (number.adjusted() - 2)
    near = {
        "rounded up to three digits": (number / unit).to_integral_value(ROUND_CEILING)
        * unit,
        "0.6 more": number + Decimal("0.6"),
        "1 % more": number * Decimal("1.01"),
        "other sign": -number,
    }
    wrong = [
        Tried(f"near miss {label!r}", f"{value:f}", is_right=False)
        for label, value in near.items()
        if value != number
    ]
    return [*wrong, *right]


@contextlib.asynccontextmanager
async def version_workers(other: Interpreter) -> AsyncIterator[list[VersionWorker]]:
    """Start a worker for the installed version and one for the other."""
    with tempfile.TemporaryDirectory() as temporary:
        workers = []
        for name, interpreter in (("installed", Interpreter()), ("other", other)):
            copy = Path(temporary) / name
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(_PACKAGE, copy / _PACKAGE.name, ignore=ignored)
            shutil.copy(_WORKER, copy)
            workers.append(VersionWorker(interpreter, copy))
        try:
            yield workers
        finally:
            await asyncio.gather(*(worker.close() for worker in workers))


async def audit_versions(
    other: Interpreter, names: Sequence[str], *, items: int, level_items: int
) -> VersionAudit:
    """Compare the installed library with another version, with a progress bar on a terminal.

    Args:
        names: of tasks; empty means every task of the installed version.
        items: of each task at its default configuration, whose answers are scored.
        level_items: of each level of the installed version.

    Raises:
        FixableError: a version's library can't be read.
    """
    async with version_workers(other) as workers:
        before, after = await asyncio.gather(
            _description(workers[0], f"the installed {LIBRARY}"),
            _description(workers[1], f"the other {LIBRARY}"),
        )
        known = sorted(before["tasks"].keys() | after["tasks"].keys())
        require_known(names, known, "--tasks", what="task")
        chosen = [name for name in known if not names or name in names]
        common = {
            name: before["tasks"][name]
            for name in chosen
            if name in before["tasks"] and name in after["tasks"]
        }
        found = await _compare(workers, common, items=items, level_items=level_items)
    own = chain.from_iterable(
        _describe(task, before["tasks"].get(task), after["tasks"].get(task))
        for task in chosen
    )
    return VersionAudit(
        before=before["version"],
        after=after["version"] if other.folder is None else str(other.folder),
        dependencies=_differing(before["dependencies"], after["dependencies"]),
        tasks=len(common),
        items=sum(number for number, _ in found),
        differences=[
            *own,
            *chain.from_iterable(differences for _, differences in found),
        ],
    )


async def _description(worker: VersionWorker, name: str) -> Any:
    try:
        return await worker.ask({}, _START_SECONDS)
    except ChildProcessError as error:
        raise FixableError(f"{name} can't be read: {error}") from None


async def _compare(
    workers: Sequence[VersionWorker],
    tasks: Mapping[str, Any],
    *,
    items: int,
    level_items: int,
) -> list[tuple[int, list[Difference]]]:
    """Compare one task after the other; return what `TaskComparison.run` does for each.

    Args:
        tasks: descriptions by name.
    """
    turn = asyncio.Lock()

    async def one(task: str) -> tuple[int, list[Difference]]:
        async with turn:
            comparison = TaskComparison(workers, task, tasks[task])
            return await comparison.run(items=items, level_items=level_items)

    return await with_progress([one(task) for task in tasks], "versions")


def _differing(
    before: Mapping[str, str], after: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """Return by name the values that differ; a missing one is empty."""
    pairs = {
        n: (before.get(n, ""), after.get(n, ""))
        for n in sorted(before.keys() | after.keys())
    }
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _describe(task: str, before: Any, after: Any) -> Iterator[Difference]:
    """Yield what differs between two descriptions of a task; None where it doesn't exist."""
    if before is None or after is None:
        yield Difference(task=task, kind=Kind.NEW if before is None else Kind.GONE)
        return
    gone = sorted(set(before["parameters"]) - set(after["parameters"]))
    new = sorted(set(after["parameters"]) - set(before["parameters"]))
    if gone or new:
        names = f"gone: {', '.join(gone) or 'none'}; new: {', '.join(new) or 'none'}"
        yield Difference(task=task, kind=Kind.PARAMETERS, detail=names)
    if before["fault"] != after["fault"]:
        one, other = before["fault"] or "builds", after["fault"] or "builds"
        yield Difference(task=task, kind=Kind.LEVELS, before=one, after=other)
    elif before["levels"] != after["levels"]:
        pairs = zip(before["levels"], after["levels"], strict=False)
        one, other = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
        heights = f"{len(before['levels'])} and {len(after['levels'])} levels"
        yield Difference(
            task=task,
            kind=Kind.LEVELS,
            detail=heights,
            before=str(one),
            after=str(other),
        )


class TaskComparison:
    """The comparison of one task on the same recipes and probes.

    Args:
        workers: of the installed version and of the other one.
        description: of the task in the installed version.
    """

    def __init__(
        self,
        workers: Sequence[VersionWorker],
        task: str,
        description: Mapping[str, Any],
    ) -> None:
        self._workers = workers
        self._task = task
        self._levels = description["levels"]
        self._found: dict[tuple[Kind, str], Difference] = {}

    async def run(
        self, *, items: int, level_items: int
    ) -> tuple[int, list[Difference]]:
        """Return the number of items made in both versions, and all differences."""
        recipes = self._recipes(items, level_items)
        try:
            before, after = await self._ask({"recipes": recipes})
            same = self._compare_items(recipes, before, after)
            await self._compare_scores(
                recipes, before, [index for index in same if index < items]
            )
        except ChildProcessError as error:
            failed = Difference(task=self._task, kind=Kind.FAILED, detail=str(error))
            return 0, [*self._found.values(), failed]
        return len(same), list(self._found.values())

    async def _ask(self, request: Mapping[str, Any]) -> list[Any]:
        replies = await asyncio.gather(
            *(worker.ask(request, _TASK_SECONDS) for worker in self._workers),
            # Each reply is read, or the next one would be mistaken for it.
            return_exceptions=True,
        )
        for reply in replies:
            if isinstance(reply, BaseException):
                raise reply
        return replies

    def _recipes(self, items: int, level_items: int) -> list[dict[str, Any]]:
        """Return the recipes: those of the default configuration, then those of each level."""
        default = evaluation_recipes(_SEED, [self._task], items)
        at_levels = [
            replace(recipe, level=level, parameters=parameters)
            for level, parameters in enumerate(self._levels)
            for recipe in evaluation_recipes(
                _SEED + level + 1, [self._task], level_items
            )
        ]
        return [recipe.to_json() for recipe in [*default, *at_levels]]

    def _note(
        self, kind: Kind, detail: str, *values: object, recipe: Mapping[str, Any]
    ) -> None:
        """Count one more item with a difference; keep the first one's values."""
        first = Difference(
            task=self._task,
            kind=kind,
            detail=detail,
            before=str(values[0]),
            after=str(values[1]),
            recipe=recipe,
        )
        kept = self._found.get((kind, detail), first)
        self._found[kind, detail] = replace(kept, items=kept.items + 1)

    def _compare_items(
        self, recipes: Sequence[Mapping[str, Any]], before: Any, after: Any
    ) -> list[int]:
        """Note the items that differ; return those whose question or answer is the same."""
        same = []
        for index, (recipe, one, other) in enumerate(
            zip(recipes, before, after, strict=True)
        ):
            errors = one["error"], other["error"]
            if any(errors):
                if not all(errors):
                    made = [error or "an item" for error in errors]
                    self._note(Kind.GENERATION, "", *made, recipe=recipe)
                continue
            if one["question"] != other["question"]:
                excerpts = _excerpts(one["question"], other["question"])
                self._note(Kind.QUESTION, "", *excerpts, recipe=recipe)
            elif one["answer"] != other["answer"]:
                self._note(
                    Kind.LABEL, "", one["answer"], other["answer"], recipe=recipe
                )
            answers = {one["answer"], other["answer"]}
            if one["question"] == other["question"] or (
                len(answers) == 1 and None not in answers
            ):
                same.append(index)
        for key, difference in self._found.items():
            self._found[key] = replace(difference, of=len(recipes))
        return same

    async def _compare_scores(
        self, recipes: Sequence[Mapping[str, Any]], items: Any, same: Sequence[int]
    ) -> None:
        """Note the probes that one version pays otherwise than the other."""
        oracles = [item.get("answer") for item in items]
        constants = constants_for(oracle for oracle in oracles if oracle is not None)
        for index in same:
            question, oracle = items[index]["question"], oracles[index]
            others = [text for text in oracles if text is not None and text != oracle]
            tried = [
                Tried(
                    f"{probe.kind.value} {probe.label!r}", probe.answer, probe.is_right
                )
                for probe in probes_for(
                    question, oracle, constants=constants, others=others
                )
            ]
            tried += near_answers(oracle) if oracle is not None else []
            answers = [one.answer for one in tried]
            before, after = await self._ask({"item": index, "answers": answers})
            for scorer, pays in _paired(before, after):
                for answer, one, other in zip(tried, *pays, strict=True):
                    if one != other:
                        self._note_score(scorer, answer, one, other, recipes[index])
        for key, difference in self._found.items():
            if difference.kind in (Kind.PAYS_MORE, Kind.SCORE):
                self._found[key] = replace(difference, of=len(same))

    def _note_score(
        self,
        scorer: str,
        tried: Tried,
        before: Any,
        after: Any,
        recipe: Mapping[str, Any],
    ) -> None:
        amounts = [
            0.0 if isinstance(value, str) else value for value in (before, after)
        ]
        more = amounts[1] > amounts[0] and not tried.is_right
        answer = shorten(tried.answer)
        self._note(
            Kind.PAYS_MORE if more else Kind.SCORE,
            f"{scorer}, {tried.name}",
            f"{before} for {answer}",
            f"{after} for {answer}",
            recipe=recipe,
        )


def _excerpts(one: str, other: str) -> tuple[str, str]:
    """Return two texts from shortly before where they begin to differ."""
    pairs = enumerate(zip(one, other, strict=False))
    differing = (place for place, (a, b) in pairs if a != b)
    begin = max(0, next(differing, min(len(one), len(other))) - _EXCERPT // 3)
    return repr(one[begin : begin + _EXCERPT]), repr(other[begin : begin + _EXCERPT])


def _paired(before: Any, after: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield each scorer with its scores; one that is new or gone is paired with the usual one."""
    for scorer in sorted(before.keys() | after.keys()):
        yield (
            scorer,
            (before.get(scorer, before[_SCORER]), after.get(scorer, after[_SCORER])),
        )


def as_json(audit: VersionAudit) -> str:
    """Return the audit as JSON."""
    return json.dumps(asdict(audit), indent=2)


def as_text(audit: VersionAudit) -> str:
    """Return the differences by task and kind, and what they mean."""
    lines = [f"{LIBRARY} {audit.before} (installed) against {audit.after}"]
    for name, (one, other) in audit.dependencies.items():
        lines.append(f"dependency {name}: {one or 'none'} -> {other or 'none'}")
    by_kind: defaultdict[tuple[str, Kind], list[Difference]] = defaultdict(list)
    order = list(Kind)
    for difference in sorted(
        audit.differences, key=lambda each: order.index(each.kind)
    ):
        by_kind[difference.task, difference.kind].append(difference)
    for (task, kind), differences in by_kind.items():
        lines.append(f"\n{task}: {kind.value}")
        lines += _shown(sorted(differences, key=lambda each: -each.items))
    compared = f"{audit.tasks} tasks and {audit.items} items in both versions"
    if not audit.differences:
        return "\n".join([*lines, f"\n{compared}: nothing differs"])
    tasks = len({difference.task for difference in audit.differences})
    return "\n".join(
        [
            *lines,
            f"\n{compared}; {tasks} tasks differ (exit status 1)",
            "Stored recipes, ladders, floors and guards hold for the installed version. Before you "
            "use the other one, look at each difference, first where it pays more for a wrong "
            "answer.",
        ]
    )


def _shown(differences: Iterable[Difference]) -> Iterator[str]:
    """Yield the lines of one task's differences of one kind, the first ones with an example."""
    each = list(differences)
    for difference in each[:_SHOWN]:
        share = (
            f"{difference.items} of {difference.of} items" if difference.items else ""
        )
        if said := "; ".join(text for text in (share, difference.detail) if text):
            yield f"  {said}"
        if difference.before or difference.after:
            yield f"    before {difference.before}"
            yield f"    after  {difference.after}"
        if difference.recipe is not None:
            yield f"    recipe {json.dumps(difference.recipe)}"
    if len(each) > _SHOWN:
        yield f"  and {len(each) - _SHOWN} more; --json has all"
