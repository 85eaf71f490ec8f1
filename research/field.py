"""Prove the tasks of other projects, and check the rows that their packages ship, for field.md.

python -m research.field tasks reasoning_core    # or rlve, internbootcamp; where that is installed
python -m research.field tasks rlve --seed 1 --count 10    # the first 10 of them, on other items
python -m research.field rows nemo_gym-0.7.0-py3-none-any.whl    # from pip download --no-deps
python -m research.field page

Results are appended to field.jsonl as they come. The same command continues from there. What a
reader thinks of a fault stands in field_readings.json; the page marks what nobody has read.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import msgspec

from reasoning_gym_environment.proof.checks import DEFAULT_ITEMS, Result
from reasoning_gym_environment.proof.findings import Finding
from reasoning_gym_environment.proof.proving import prove_tasks
from reasoning_gym_environment.proof.rows import CheckedRows, RowFinding, check_rows
from reasoning_gym_environment.sandbox.pool import PoolSettings, TaskPool
from reasoning_gym_environment.settings import EnvironmentSettings, pool_settings
from reasoning_gym_environment.util.values import group_by

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).with_suffix(".jsonl")
READINGS = Path(__file__).with_name("field_readings.json")
PAGE = Path(__file__).with_suffix(".md")

PACKAGES = f"{sysconfig.get_path('purelib')}{os.sep}"
"""Where packages are installed here, which a message may name."""

DRAW_SEED = 77
"""Which tasks are drawn of a project that has more than its share here."""

SECONDS = 20.0
"""Of processor time, for each task."""


@dataclass(frozen=True, kw_only=True)
class Project:
    """A project with tasks.

    Attributes:
        name: as its authors write it.
        module: registers its tasks.
        count: how many of them are drawn; None for all.
        package: its name on PyPI; empty if it has none.
        checkout: the environment variable that names its checkout; empty if it has none.
    """

    name: str
    module: str
    count: int | None
    package: str = ""
    checkout: str = ""


PROJECTS = {
    "reasoning_core": Project(
        name="reasoning-core",
        module="examples/reasoning_core_tasks.py",
        count=None,
        package="reasoning-core",
    ),
    "rlve": Project(
        name="RLVE",
        module="examples/rlve_tasks.py",
        count=100,
        package="rlve-gym",
    ),
    "internbootcamp": Project(
        name="InternBootcamp",
        module="examples/internbootcamp_tasks.py",
        count=30,
        checkout="INTERNBOOTCAMP",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    commands = parser.add_subparsers(dest="command", required=True)
    tasks = commands.add_parser("tasks")
    tasks.add_argument("project", choices=PROJECTS)
    tasks.add_argument("--seed", type=int, default=0, help="of the items")
    tasks.add_argument("--count", type=int, help="of those drawn, the first so many")
    rows = commands.add_parser("rows")
    rows.add_argument("wheels", nargs="+", type=Path)
    commands.add_parser("page")
    options = parser.parse_args()
    if options.command == "tasks":
        asyncio.run(
            prove_project(
                PROJECTS[options.project],
                options.results,
                seed=options.seed,
                count=options.count,
            )
        )
    elif options.command == "rows":
        asyncio.run(check_wheels(options.wheels, options.results))
    else:
        readings = json.loads(READINGS.read_text(encoding="utf-8"))
        page = as_markdown(read_results(options.results), readings)
        PAGE.write_text(page, encoding="utf-8")


def read_results(file: Path) -> list[dict[str, Any]]:
    """Return the results so far; a line that was cut off is left out."""
    if not file.exists():
        return []
    results = []
    for line in file.read_text(encoding="utf-8").splitlines():
        with suppress(json.JSONDecodeError):
            results.append(json.loads(line))
    return results


def append(file: Path, result: Mapping[str, Any]) -> None:
    """Add a result to those of the file, on a line of its own, also behind one that was cut off."""
    before = file.read_bytes() if file.exists() else b""
    separator = "" if before.endswith(b"\n") or not before else "\n"
    with file.open("a", encoding="utf-8") as lines:
        lines.write(f"{separator}{json.dumps(result)}\n")


async def prove_project(
    project: Project,
    file: Path,
    *,
    seed: int,
    count: int | None,
    seconds: float = SECONDS,
) -> None:
    """Prove the tasks of a project that the file has no result of.

    Args:
        seed: of the items.
        count: of the tasks that are drawn, the first so many; None for all.
        seconds: of processor time, for each task.
    """
    settings = pool_settings(
        EnvironmentSettings(
            task_modules=[str(ROOT / project.module)],
            task_environment=[project.checkout] if project.checkout else [],
            task_processes=1,
        )
    )
    tasks = drawn(await task_names(settings), project.count)[:count]
    done = {
        result["task"]
        for result in read_results(file)
        if result.get("project") == project.name and result["seed"] == seed
    }
    left = [task for task in tasks if task not in done]
    print(f"{len(left)} of {len(tasks)} tasks of {project.name} are left", flush=True)

    def keep(proof: Result) -> None:
        append(file, task_result(project, proof, seed))

    if left:
        await prove_tasks(
            left,
            settings,
            items=DEFAULT_ITEMS,
            seconds=seconds,
            known_findings={},
            seed=seed,
            keep=keep,
        )


async def task_names(settings: PoolSettings) -> list[str]:
    """Return the tasks of a project's module, also those that can't be built."""
    async with TaskPool(settings, Counter()) as pool:
        return sorted(
            task for module in pool.modules.values() for task in module.categories
        )


def drawn(tasks: Sequence[str], count: int | None) -> list[str]:
    """Return the tasks in the order of the draw, so many of them."""
    return random.Random(DRAW_SEED).sample(tasks, count or len(tasks))


def task_result(project: Project, proof: Result, seed: int) -> dict[str, Any]:
    """Return what a proof has shown, with the smallest example of each fault."""
    return {
        "project": project.name,
        "version": project_version(project),
        "task": proof.task,
        "seed": seed,
        "seconds": SECONDS,
        "verdict": proof.verdict,
        "checks": {name: check.verdict for name, check in proof.checks.items()},
        "items": [level.items for level in proof.levels],
        "items_with_all_answers": [
            level.items_with_all_answers for level in proof.levels
        ],
        "faults": [
            fault(findings)
            for findings in group_by(
                lambda finding: (finding.check, finding.kind, finding.verdict),
                proof.findings,
            ).values()
        ],
    }


def fault(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return what findings of one kind show, with the smallest example of all levels."""
    first = findings[0]
    smallest = min(findings, key=lambda finding: len(finding.example))
    return {
        "check": first.check,
        "kind": first.kind,
        "verdict": first.verdict,
        "levels": [finding.level for finding in findings],
        "detail": smallest.detail.replace(PACKAGES, ""),
        "example": smallest.example,
        "waived": first.explanation,
    }


async def check_wheels(wheels: Sequence[Path], file: Path) -> None:
    """Check the JSON lines in packages that the file has no result of."""
    done = {result["package"] for result in read_results(file) if "package" in result}
    settings = pool_settings(EnvironmentSettings(task_processes=1))
    async with TaskPool(settings, Counter()) as pool:
        ladders = {
            task: ladder.levels for task, ladder in (await pool.ladders()).items()
        }
        for wheel in wheels:
            package = "-".join(wheel.name.split("-")[:2])
            if package in done:
                continue
            checked = {}
            with ZipFile(wheel) as content:
                for name in content.namelist():
                    if name.endswith(".jsonl"):
                        text = content.read(name).decode(errors="replace")
                        lines = text.splitlines()
                        checked[name] = await check_rows(lines, pool, ladders)
            append(file, rows_result(package, checked))


def rows_result(package: str, checked: Mapping[str, CheckedRows]) -> dict[str, Any]:
    """Return what is known of a package's rows, by file, with an example of each finding."""
    findings = [
        (name, finding) for name, rows in checked.items() for finding in rows.findings
    ]
    unchecked = [row.reason for rows in checked.values() for row in rows.unchecked]
    return {
        "package": package,
        "files": len(checked),
        "rows": sum(rows.rows for rows in checked.values()),
        "findings": {
            kind: {
                "rows": len(of_kind),
                "files": len({name for name, _ in of_kind}),
                "first": {"file": of_kind[0][0], **msgspec.to_builtins(of_kind[0][1])},
            }
            for kind, of_kind in group_by(
                lambda found: _fault_of_row(found[1]), findings
            ).items()
        },
        "not_checked": Counter(unchecked),
    }


def _fault_of_row(finding: RowFinding) -> str:
    """Return the kind of a finding; of a question of evaluation also whose evaluation."""
    if finding.kind == "evaluation":
        return f"{finding.kind}: {finding.detail}"
    return finding.kind


def project_version(project: Project) -> str:
    """Return the version of a package, or the commit of a checkout."""
    if project.package:
        return version(project.package)
    command = [
        "git",
        "-C",
        os.environ[project.checkout],
        "rev-parse",
        "--short",
        "HEAD",
    ]
    return subprocess.check_output(command, text=True).strip()


UNREAD = "not read yet"
"""The reading of a fault that nobody has looked at."""

REAL = "fault"
"""How the reading of a real fault begins."""

_HEAD = """\
# The field's tasks, proved

<!-- generated: do not edit -->
`prove` tried tasks of other projects, drawn by seed, for {seconds:.0f} seconds of processor time
each. `python -m research.field --help` says how to repeat it, and how to go on.
[Reports](field-reports.md) of the clearest faults can be repeated with the projects' packages
alone.

- *proved*: all seven checks passed. Few tasks can get there in so little time.
- *no fault*: nothing was found before the time ran out.
- *not checked*: no fault was found, but nothing confirms the labels.
- *refused*: a check failed. That is no verdict on a project. The readings below say which faults
  are real, which the authors mean to be so or don't promise, and which are false alarms of `prove`.
- *with a fault*: of the refused, those for which a reading below calls a fault real.

"""

_ROWS_HEAD = """
## Rows in packages

`prove --rows` read all JSON lines in the wheels. Without a project's verifier, it knows the rows of
reasoning-gym alone. A question "belongs to evaluation" by our own split, which their authors don't
know; `paper-easy` is a published suite of reasoning-gym's paper.
"""


def as_markdown(
    results: Sequence[Mapping[str, Any]], readings: Sequence[Mapping[str, str]]
) -> str:
    """Return the page in Markdown.

    Args:
        readings: what a reader thinks of faults; "*" stands for all tasks of a project.
    """
    proofs = [result for result in results if "task" in result]
    first_proofs = [proof for proof in proofs if proof["seed"] == 0]
    packages = [result for result in results if "package" in result]
    without_rows = [package["package"] for package in packages if not package["files"]]
    lines = [
        *_table(
            (
                *("project", "version", "tasks tried"),
                *(*SHOWN_VERDICTS.values(), "with a fault"),
            ),
            _project_rows(first_proofs, readings),
        ),
        "",
        *_second_seed(proofs),
        "",
        "## Faults",
        "",
        *_table(
            ("project", "fault", "tasks", "reading", "smallest example"),
            _fault_rows(first_proofs, readings),
        ),
        _ROWS_HEAD,
        *_table(
            ("package", "files", "rows", "without a known task", "findings"),
            _package_rows([package for package in packages if package["files"]]),
        ),
        "",
        f"Without JSON lines: {', '.join(without_rows) or 'none'}.",
        "",
        "## Every task",
        "",
        *_table(("project", "task", "verdict", "faults"), _task_rows(first_proofs)),
    ]
    return _HEAD.format(seconds=SECONDS) + "\n".join(lines) + "\n"


SHOWN_VERDICTS = {
    "proved": "proved",
    "not_tried": "no fault",
    "not_checked": "not checked",
    "failed": "refused",
}
"""How the page names the verdicts of a proof."""


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return a table in Markdown."""
    cells = [head, ["---"] * len(head), *rows]
    return [
        f"| {' | '.join(_cell(cell) for cell in row_cells)} |" for row_cells in cells
    ]


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _project_rows(
    proofs: Sequence[Mapping[str, Any]], readings: Sequence[Mapping[str, str]]
) -> Iterator[Sequence[object]]:
    counts = {project.name: project.count for project in PROJECTS.values()}
    for (project, version_), own in group_by(
        lambda proof: (proof["project"], proof["version"]), proofs
    ).items():
        verdicts = Counter(proof["verdict"] for proof in own)
        drawn_count = counts.get(project)
        yield (
            project,
            version_,
            f"{len(own)} of {drawn_count} drawn" if drawn_count else len(own),
            *(verdicts[verdict] for verdict in SHOWN_VERDICTS),
            sum(has_real_fault(proof, readings) for proof in own),
        )


def has_real_fault(
    proof: Mapping[str, Any], readings: Sequence[Mapping[str, str]]
) -> bool:
    """Return whether a reader calls one of a task's faults real."""
    read = [
        reading(proof["project"], proof["task"], fault_name(fault_), readings)
        for fault_ in failures(proof)
    ]
    return any(text.startswith(REAL) for text in read)


def _second_seed(proofs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return how many tasks are refused for the same faults with other items."""
    faults_by_seed: dict[int, dict[tuple[str, str], set[str]]] = {}
    for proof in proofs:
        of_seed = faults_by_seed.setdefault(proof["seed"], {})
        of_seed[proof["project"], proof["task"]] = {
            fault_name(fault_) for fault_ in failures(proof)
        }
    first = faults_by_seed.get(0, {})
    second = faults_by_seed.get(1, {})
    both = first.keys() & second.keys()
    same = [task for task in both if first[task] == second[task]]
    if not both:
        return ["No task was tried with a second seed yet."]
    lines = [
        f"With a second seed, {len(same)} of {len(both)} tasks had the same faults."
    ]
    for project, task in sorted(both):
        differing = first[project, task] ^ second[project, task]
        if differing:
            lines.append(
                f"Once only: {project} {task}: {', '.join(sorted(differing))}."
            )
    return lines


def failures(proof: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the faults for which a task is refused, without those that its file explains."""
    return [
        fault_
        for fault_ in proof["faults"]
        if fault_["verdict"] == "failed" and not fault_["waived"]
    ]


def fault_name(fault_: Mapping[str, Any]) -> str:
    return f"{fault_['check'].replace('_', ' ')}: {fault_['kind']}"


def _fault_rows(
    proofs: Sequence[Mapping[str, Any]], readings: Sequence[Mapping[str, str]]
) -> Iterator[Sequence[object]]:
    """Yield each fault of each project, with how it is read and its smallest example."""
    faults = [
        (proof["project"], fault_name(fault_), proof["task"], fault_)
        for proof in proofs
        for fault_ in failures(proof)
    ]
    alike = group_by(
        lambda found: (
            found[0],
            found[1],
            reading(found[0], found[2], found[1], readings),
        ),
        faults,
    )
    for (project, name, how_read), own in alike.items():
        _, _, task, smallest = min(
            own, key=lambda found: len(found[3]["detail"] + found[3]["example"])
        )
        example = f"{task}: {smallest['detail']} {smallest['example']}".strip()
        yield project, name, len(own), how_read, example


def reading(
    project: str, task: str, name: str, readings: Sequence[Mapping[str, str]]
) -> str:
    """Return what a reader thinks of a task's fault."""
    for one in readings:
        is_task = one["task"] in ("*", task)
        if is_task and (one["project"], one["fault"]) == (project, name):
            return one["reading"]
    return UNREAD


def _task_rows(proofs: Sequence[Mapping[str, Any]]) -> Iterator[Sequence[object]]:
    for proof in sorted(proofs, key=lambda one: (one["project"], one["task"])):
        names = [fault_name(fault_) for fault_ in failures(proof)]
        yield (
            proof["project"],
            proof["task"],
            SHOWN_VERDICTS[proof["verdict"]],
            ", ".join(dict.fromkeys(names)),
        )


def _package_rows(
    packages: Sequence[Mapping[str, Any]],
) -> Iterator[Sequence[object]]:
    for package in packages:
        parts = [
            f"{found['rows']} {kind}, in {found['files']} files"
            for kind, found in package["findings"].items()
            if kind != "unreadable"
        ]
        parts += [
            f"{count} not checked: {why}"
            for why, count in package["not_checked"].items()
        ]
        unreadable = package["findings"].get("unreadable", {"rows": 0})["rows"]
        yield (
            package["package"],
            package["files"],
            package["rows"],
            unreadable,
            "; ".join(parts),
        )


if __name__ == "__main__":
    main()
