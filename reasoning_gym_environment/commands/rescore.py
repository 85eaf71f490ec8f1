"""`rescore`: stored rollouts scored again under other settings, without inference."""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from ..errors import FixableError
from ..evaluation.metrics import Baselines, evaluation_report
from ..evaluation.store import write_metrics
from ..evaluation.tables import evaluation_table
from ..sandbox.pool import PoolSettings, TaskPool
from ..scoring.grading import ScoringSettings
from ..settings import add_settings, pool_settings, read_environment, scoring_settings
from ..storage.dumps import RESCORED, read_groups, rescored_path, stored_files
from ..storage.rescoring import Rescored, describe_rescoring, rescore
from ..storage.rows import StoredGroup
from ..util.command_line import Parser
from ..util.files import require_free, require_place, write_whole
from ..util.values import escape_control_characters

logger = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> int:
    """Write a rescored file beside each file; return 1 if some rows could not be rescored.

    Raises FixableError if there is nothing to rescore, or an output exists.
    """
    options = build_parser().parse(arguments)
    config = read_environment(options)
    rescored = [path for path in options.files if path.name.endswith(RESCORED)]
    originals = [path for path in options.files if path not in rescored]
    files = stored_files(originals, with_rescored=True)
    if not files:
        raise FixableError("all files are rescored already; name the original files")
    for path in rescored:
        logger.warning("Skipping %s: it is rescored already", path)
    for path in files:
        require_free(rescored_path(path), force=options.force)
        require_free(metrics_path(path), force=options.force)
    contents = {path: read_groups(path) for path in files}
    for path in files:
        require_place(path.parent, str(path))
    scoring = scoring_settings(config)
    pool = pool_settings(config)
    leave_out = options.without_faulty_items
    stored = {path: groups for path, (groups, _) in contents.items()}
    by_file, categories = asyncio.run(
        rescore_files(stored, pool, scoring, leave_out=leave_out)
    )
    lines = []
    tables = []
    results = [result for done in by_file.values() for result in done]
    for path, done in by_file.items():
        groups = written_groups(done, leave_out=leave_out)
        lines.append(f"{path} -> {rescored_path(path).name}")
        if groups and all(group.is_sample for group in groups):
            attempts = max(len(sample.rollouts) for sample in groups)
            baselines = Baselines.at_threshold(
                config.solved_threshold, categories=categories, attempts=attempts
            )
            report = evaluation_report(groups, baselines)
            write_metrics(metrics_path(path), report)
            tables.append(f"\n{metrics_path(path)}\n{evaluation_table(report)}")
    torn = sum(torn for _, torn in contents.values())
    lines += [*describe_rescoring(results, scoring, torn=torn), *tables]
    copies = shlex.join(str(rescored_path(path)) for path in files)
    lines += [
        "",
        "Look at the new scores:",
        f"  reasoning-gym-environment show {copies}",
    ]
    print(escape_control_characters("\n".join(lines)))
    return 1 if any(result.kept for result in results) else 0


async def rescore_files(
    stored: Mapping[Path, Sequence[StoredGroup]],
    settings: PoolSettings,
    scoring: ScoringSettings,
    *,
    leave_out: bool,
) -> tuple[dict[Path, list[Rescored]], Mapping[str, str]]:
    """Score all files again, and write each as soon as it is done; return also categories."""
    results = {}
    async with TaskPool(settings, Counter()) as pool:
        for path, stored_groups in stored.items():
            logger.info("Rescoring %d groups of %s", len(stored_groups), path)
            done = await rescore(
                stored_groups, pool, scoring, concurrency=2 * settings.processes
            )
            groups = written_groups(done, leave_out=leave_out)
            write_whole(rescored_path(path), "".join(group.line() for group in groups))
            results[path] = done
        return results, pool.categories


def written_groups(
    results: Sequence[Rescored], *, leave_out: bool
) -> list[StoredGroup]:
    """Return the rescored groups, without those of faulty items if `leave_out` is set."""
    groups = [result.after for result in results]
    return [group for group in groups if not (leave_out and group.is_faulty)]


def metrics_path(path: Path) -> Path:
    """Return the path of the metrics of an evaluation's rescored samples."""
    return rescored_path(path).with_suffix(".metrics.json")


def build_parser() -> Parser:
    parser = Parser(
        "rescore",
        "Regenerate every row's problem from its recipe, score the stored texts again "
        f"and write NAME{RESCORED} beside each NAME.jsonl. No inference is used.",
        epilog="Exits with 1 if rows could not be rescored; those stay unchanged.",
    )
    parser.option(
        "files",
        "dumps, samples, or folders",
        nargs="+",
        metavar="PATH",
        type=Path,
    )
    parser.flag("--force", "replace rescored files")
    parser.flag(
        "--without-faulty-items",
        "leave out rows whose label is known to be false, or whose question has no or "
        "several right answers",
    )
    add_settings(
        parser, "generation_timeout", *(field.name for field in fields(ScoringSettings))
    )
    return parser
