"""`export`: stored rollouts as data that others train on."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..errors import FixableError
from ..integrations.nemo_gym import stored_nemo_gym_rows
from ..storage.dumps import distinct_files, read_groups
from ..storage.export import (
    DPO_COLUMNS,
    RECORD_COLUMNS,
    SFT_COLUMNS,
    Item,
    dpo_rows,
    prepare,
    record_rows,
    require_replaceable,
    sft_rows,
    targets,
    write_splits,
)
from ..storage.rows import StoredGroup
from ..util.files import require_not_read

COLUMNS = {"sft": SFT_COLUMNS, "dpo": DPO_COLUMNS, "records": RECORD_COLUMNS, "nemo-gym": {}}
"""By format; that of NeMo Gym is written as JSONL alone, which asks for none."""


def main(arguments: Sequence[str]) -> int:
    """Write the rows of all files and say how many."""
    options = parse(arguments)
    files = distinct_files(options.files)
    names = ["train", "test"] if options.test_share else ["train"]
    paths = targets(options.output, names)
    for path in paths.values():
        require_not_read(path, files)
        require_replaceable(path, force=options.force)

    contents = [read_groups(path) for path in files]
    groups = [group for content in contents for group in content.groups]
    items = [item for group in groups for item in rows_of(group, options)]
    prepared = prepare(items, options.test_share)
    for name, rows in prepared.splits.items():
        if not rows:
            raise FixableError(nothing(name, len(groups), options))
    write_splits(options.output, prepared.splits, COLUMNS[options.format])

    of_evaluations = sum(group.has_evaluation_seed for group in groups)
    for name, rows in prepared.splits.items():
        print(f"{len(rows)} rows for {name} in {paths[name]}")
    print(f"from {len(groups)} groups")
    for count, what in (
        (prepared.duplicates, "duplicates left out"),
        (sum(content.torn for content in contents), "torn lines left out"),
        (prepared.broken, "broken characters replaced by U+FFFD"),
        (of_evaluations, "groups are of evaluation items: don't train on what you evaluate on"),
    ):
        if count:
            print(f"{count} {what}")
    return 0


def parse(arguments: Sequence[str]) -> Namespace:
    """Parse the options; raises SystemExit, after saying why, where they don't go together."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    if not 0 <= options.test_share < 1:
        parser.error(f"--test-share is {options.test_share}; it must be in [0, 1)")
    if options.min_score is not None and options.format != "sft":
        parser.error("--min-score is for --format sft")
    if options.format == "nemo-gym" and options.output.suffix != ".jsonl":
        parser.error(f"-o is {options.output}; --format nemo-gym needs a name that ends in .jsonl")
    return options


def build_parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="reasoning-gym-environment export",
        description="Write stored rollouts as data that others train on.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", type=Path, help="dumps or samples")
    parser.add_argument(
        "--format",
        choices=COLUMNS,
        required=True,
        help="sft: good completions; dpo: a right and a wrong one of each group; records: all; "
        "nemo-gym: the problems, as NeMo Gym reads them",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        type=Path,
        required=True,
        help="a file that ends in .jsonl or .parquet, or a folder for a dataset of Hugging Face",
    )
    parser.add_argument(
        "--min-score", type=float, help="sft: least reward (default: the status solved)"
    )
    parser.add_argument(
        "--test-share", type=float, default=0.0, help="of the questions, put aside for tests"
    )
    parser.add_argument("--force", action="store_true", help="replace what is there")
    return parser


def rows_of(group: StoredGroup, options: Namespace) -> Iterator[Item]:
    """Make the rows that a group gives in the format asked for."""
    if options.format == "sft":
        return sft_rows(group, min_score=options.min_score)
    if options.format == "nemo-gym":
        return stored_nemo_gym_rows(group)
    return dpo_rows(group) if options.format == "dpo" else record_rows(group)


def nothing(split_name: str, groups: int, options: Namespace) -> str:
    """Say why there is nothing to write, and the way out."""
    ways = {
        "sft": "a lower --min-score takes more",
        "dpo": "only groups with solved and unsolved rollouts give a pair",
        "records": "the items are too few",
        "nemo-gym": "the items are too few",
    }
    share = "; or another --test-share" if options.test_share else ""
    return f"{groups} groups give no rows for {split_name}: {ways[options.format]}{share}"
