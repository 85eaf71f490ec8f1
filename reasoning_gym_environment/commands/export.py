"""`export`: stored rollouts as training data."""

from __future__ import annotations

import logging
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import structs

from ..errors import ConfigurationError, FixableError
from ..evaluation.store import SAMPLES
from ..integrations.nemo_gym import stored_nemo_gym_rows
from ..report.filter import FIELDS, filter_rollouts
from ..storage.dumps import read_groups, stored_files
from ..storage.export import (
    Item,
    dpo_rows,
    item,
    prepare,
    record_rows,
    require_replaceable,
    sft_rows,
    skyrl_row,
    targets,
    verl_row,
    write_splits,
)
from ..storage.rows import StoredGroup
from ..util.command_line import Parser, number
from ..util.files import require_not_read

logger = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> int:
    """Write the rows of all files and print their counts."""
    options = build_parser().parse(arguments)
    if options.min_score is not None and options.format != "sft":
        raise ConfigurationError("--min-score needs --format sft")
    require_jsonl_for_nemo_gym(options)
    files = stored_files(options.files)
    samples = [
        path for path in files if path.name == SAMPLES and path not in options.files
    ]
    if len(samples) < len(files):  # else the folders are those of evaluations
        files = [path for path in files if path not in samples]
        for path in samples:
            logger.warning(
                "Skipping %s, an evaluation's; name the file to export it", path
            )
    names = ["train", "test"] if options.test_share else ["train"]
    paths = targets(options.output, names)
    for path in paths.values():
        require_not_read(path, files)
        require_replaceable(path, force=options.force)

    contents = [read_groups(path) for path in files]
    stored = [group for groups_of_file, _ in contents for group in groups_of_file]
    groups = list(filter_rollouts(stored, options.where))
    items = [
        item for group, places in groups for item in rows_of(group, places, options)
    ]
    splits, duplicates, broken = prepare(items, options.test_share)
    for name, rows in splits.items():
        if not rows:
            ways = {
                "sft": "lower --min-score",
                "dpo": "pairs need groups with solved and unsolved rollouts",
            }
            way = ways.get(options.format, "there are too few items")
            if options.format in ways and (cut := incomplete_reason(groups)):
                way = cut
            way += ", or change --test-share" if options.test_share else ""
            way += ", or change --where" if options.where else ""
            raise FixableError(f"{len(groups)} groups give no rows for {name}: {way}")
    write_splits(options.output, splits)

    of_evaluations = sum(group.recipe.is_evaluation for group, _ in groups)
    for name, rows in splits.items():
        print(f"{len(rows)} rows for {name} in {paths[name]}")
    print(f"from {len(groups)} groups")
    for count, note in (
        (duplicates, "duplicates skipped"),
        (sum(torn for _, torn in contents), "torn lines skipped"),
        (broken, "broken characters replaced by U+FFFD"),
        (of_evaluations, "groups are evaluation items: do not train on them"),
    ):
        if count:
            print(f"{count} {note}")
    return 0


def incomplete_reason(groups: Sequence[tuple[StoredGroup, Sequence[int]]]) -> str:
    """Return why all scored rollouts are excluded; empty if some are complete."""
    rollouts = [
        rollout
        for group, places in groups
        for rollout in map(group.rollouts.__getitem__, places)
        if rollout.scored
    ]
    if not rollouts or any(rollout.complete for rollout in rollouts):
        return ""
    reasons = Counter(rollout.finish_reason for rollout in rollouts)
    reason, count = reasons.most_common(1)[0]
    return (
        f"none of {len(rollouts)} scored completions is complete, {count} ended with the "
        f"finish_reason {reason}; sample them again so that they end"
    )


def build_parser() -> Parser:
    parser = Parser("export", "Write stored rollouts as training data.")
    parser.option(
        "files",
        "dumps, samples, or folders",
        nargs="+",
        metavar="PATH",
        type=Path,
    )
    parser.option(
        "--format",
        "sft: good completions; dpo: a solved and an unsolved one of a group; records: all; "
        "nemo-gym, verl, skyrl: the problems as rows of NeMo Gym, verl or SkyRL",
        choices=("sft", "dpo", "records", "nemo-gym", "verl", "skyrl"),
        metavar="FORMAT",
        required=True,
    )
    add_output_options(parser)
    add_where_option(parser)
    parser.option(
        "--min-score", "sft: least reward (default: status solved)", type=number(float)
    )
    parser.option(
        "--test-share",
        "share of the questions for a test split",
        type=number(float, ge=0, lt=1),
        default=0.0,
    )
    return parser


def add_output_options(parser: Parser, *, required: bool = True) -> None:
    """Add `-o` and `--force`, as of every command that writes training data."""
    parser.option(
        "-o/--output",
        "a .jsonl or .parquet file, or a folder for a Hugging Face dataset",
        metavar="OUT",
        type=Path,
        required=required,
    )
    parser.flag("--force", "replace existing output")


def add_where_option(parser: Parser) -> None:
    """Add `--where`, as of every command that selects rollouts."""
    parser.option(
        "--where",
        f"conditions such as 'task:maze,gcd level:>=3 reward:0..0.5 status:wrong'; fields are "
        f"{', '.join(FIELDS)}; other words are searched in questions and completions",
        default="",
        metavar="TEXT",
    )


def require_jsonl_for_nemo_gym(options: Namespace) -> None:
    """Raise ConfigurationError if NeMo Gym's rows would go to another kind of file."""
    if options.format == "nemo-gym" and options.output.suffix != ".jsonl":
        raise ConfigurationError(
            f"-o must end in .jsonl with --format nemo-gym, got {options.output}"
        )


def rows_of(
    group: StoredGroup, places: Sequence[int], options: Namespace
) -> Iterator[Item]:
    """Return the rows of a group's selected rollouts in the chosen format."""
    if options.format == "records":
        return record_rows(group, places)
    group = structs.replace(group, rollouts=[group.rollouts[place] for place in places])
    if options.format == "sft":
        return sft_rows(group, min_score=options.min_score)
    if options.format == "nemo-gym":
        return stored_nemo_gym_rows(group)
    if options.format in ("verl", "skyrl"):
        row = verl_row if options.format == "verl" else skyrl_row
        return iter([item(group, row(group.recipe, group.prompt))])
    return dpo_rows(group)
