"""`demo`: the whole loop for half a minute, with a simulated policy."""

from __future__ import annotations

import asyncio
import logging
import math
from argparse import SUPPRESS
from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path

from ..errors import FixableError
from ..util.command_line import Parser, number
from ..util.files import require_place

SERVER_TYPES = ("openai", "trl", "sglang", "vllm")
"""Those whose requests the simulated policy answers."""


def build_parser() -> Parser:
    parser = Parser(
        "demo",
        "Run the real environment between a simulated policy and a stand-in trainer "
        "that fetches batches and trains nothing. With --trainer-only, run the stand-in alone, to "
        "try `serve` with your own model.",
    )
    parser.option(
        "--seconds",
        "time to run (default: 30; with --trainer-only, until Ctrl-C)",
        type=number(float, gt=0),
        default=SUPPRESS,
    )
    parser.option(
        "--trainer-only",
        "run the stand-in trainer alone, at the Atropos API (`run-api`) of this URL "
        "(%(const)s if none is given)",
        metavar="URL",
        nargs="?",
        const="http://localhost:8000",
        default=SUPPRESS,
    )
    parser.option(
        "--server-type",
        "type of inference client",
        choices=SERVER_TYPES,
        default="openai",
    )
    parser.option(
        "--group-size",
        "rollouts of one problem",
        type=number(int, ge=2),
        default=8,
    )
    parser.option(
        "--data-dumps-dir",
        "folder of the dumps",
        type=Path,
        default=Path("data_dumps"),
    )
    parser.option(
        "--watch",
        "show the rollouts at this port while the demo runs; 0 takes a free one",
        metavar="PORT",
        type=number(int, ge=0, le=65535),
        default=0,
    )
    parser.add_argument(
        "--no-watch",
        action="store_const",
        const=None,
        dest="watch",
        help="show them nowhere",
    )
    parser.option("--seed", "seed of problems and policy", type=int, default=0)
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run the demo; raise FixableError unless groups were collected, sent and received."""
    options = build_parser().parse(arguments)
    if "trainer_only" in options:
        from ..demo.trainer import Trainer, run_alone  # slow, and not needed for --help

        trainer = Trainer.for_groups(
            options.trainer_only,
            group_size=options.group_size,
            checkpoint_dir=options.data_dumps_dir,
        )
        asyncio.run(run_alone(trainer, seconds=getattr(options, "seconds", math.inf)))
        return 0
    folder: Path = options.data_dumps_dir
    require_place(folder, "--data-dumps-dir")
    log = folder / "demo.log"
    page = folder / "demo-report.html"
    folder.mkdir(parents=True, exist_ok=True)
    # Keeps the screen readable; replaces the command line's configuration.
    logging.basicConfig(
        filename=log,
        filemode="w",
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        force=True,
    )
    from ..report.process import WatchProcess  # slow, as all that follows

    port = vars(options).pop("watch")
    with (
        nullcontext()
        if port is None
        else closing(WatchProcess([folder], port)) as watch
    ):
        from ..demo.session import render, run_demo
        from ..report.page import write_report  # heavy, and not needed for --help

        if watch is not None:
            print(f"Watch the run in a browser: {watch.url()}", flush=True)
        report = asyncio.run(run_demo(**{"seconds": 30.0, **vars(options)}))
        print(render(report, log))
        if report.dumps:
            write_report(report.dumps, page)
            print(f"\nOpen the rollouts in a browser: {page.resolve()}", flush=True)
            if watch is not None:
                watch.close(page.resolve())
    if not report.succeeded:
        raise FixableError(
            f"the trainer received no group: see {log}, or try more --seconds"
        )
    return 0
