"""`prove`: whether tasks are fit to train on, and why not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from ..errors import ConfigurationError
from ..proof.findings import KnownFindings, known_findings
from ..proof.pages import as_json, as_markdown, as_text, page_data
from ..proof.run import prove_tasks
from ..settings import add_settings, pool_settings, read_environment
from ..tasks.modules import proof_file
from ..util.command_line import Parser, number
from ..util.files import require_place, write_whole
from ._prove_rows import SETTINGS as ROWS_SETTINGS
from ._prove_rows import prove_rows


def main(arguments: Sequence[str], *, known: KnownFindings | None = None) -> int:
    """Prove tasks; return 1 if a check fails for no known reason."""
    options = build_parser().parse(arguments)
    env = read_environment(options)
    if options.rows is not None:
        return prove_rows(options.rows, env, as_json=options.json)
    if bool(options.tasks) is options.all:
        raise ConfigurationError("name the tasks to prove, or write --all; `tasks` lists them")
    for output in (options.output, options.page):
        if output is not None:
            require_place(output.parent, str(output))
    settings = pool_settings(env)
    beside = [proof_file(module) for module in settings.modules if module.shown != module.name]
    proofs = asyncio.run(
        prove_tasks(
            options.tasks,
            settings,
            items=options.items,
            seconds=options.seconds,
            known=known_findings() if known is None else known,
            files=[options.output] if options.output else beside,
        )
    )
    if options.page is not None:
        data = page_data(proofs)
        write_whole(options.page, as_markdown(data))
        write_whole(options.page.with_suffix(".json"), json.dumps(data, indent=1) + "\n")
    print(as_json(proofs) if options.json else as_text(proofs))
    return 1 if any(task.verdict == "failed" for task in proofs.tasks.values()) else 0


def build_parser() -> Parser:
    parser = Parser(
        "prove",
        "Prove tasks: the same items again, right answers paid and wrong ones not, verdicts "
        "contained, levels that differ. Status 1 if a check fails. What time did not allow is "
        "not tried; with a file, the same command continues from there.",
    )
    parser.option("tasks", "tasks to prove", nargs="*", metavar="TASK")
    parser.flag("--all", "all tasks of the modules, or else of the library")
    parser.option("--seconds", "at most, for each task", type=number(float, gt=0), default=120.0)
    parser.option(
        "--items",
        "items of each task; a tenth of them of each level, besides 200 draws",
        type=number(int, ge=1),
        default=200,
    )
    parser.flag("--json", "print JSON instead of text")
    for option, what in (
        ("-o/--output", "the proof; beside a module named by its path unless given"),
        ("--page", "a Markdown page, and its data as JSON beside it"),
    ):
        parser.option(option, f"write {what}", metavar="FILE", type=Path)
    parser.option(
        "--rows",
        "check a file of rows instead: of NeMo Gym or verl, or any with recipes or entries",
        metavar="FILE",
        type=Path,
    )
    add_settings(parser, ROWS_SETTINGS)
    return parser
