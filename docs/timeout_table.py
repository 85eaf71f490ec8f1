"""Writes the table of timeouts of docs/reliability.md from the code; `--check` only compares.

python docs/timeout_table.py [--check]

Each timeout is either for something outside (a server, a person, a disk), in wall time, or for work
of ours, in processor time. The script finds all numbers of the package that are named like one, and
fails where one has no line below.
"""

from __future__ import annotations

import ast
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from page_table import write_table

PAGE = Path(__file__).with_name("reliability.md")
PACKAGE = PAGE.parents[1] / "reasoning_gym_environment"

NAMED_LIKE_TIMEOUTS = re.compile(r"timeout|patience|_seconds$|wait_for", re.IGNORECASE)

PROCESSOR = "processor"
WALL = "wall"

Key = tuple[str, str]
"""A file of the package, and a name in it: of a constant, a field, an argument, or a call's."""

TIMEOUTS: dict[Key, tuple[str, str]] = {
    # Our work
    ("settings.py", "verify_timeout"): (PROCESSOR, "scoring one answer"),
    ("gym/containment.py", "timeout"): (
        PROCESSOR,
        "a call of a contained function, with its threads and processes",
    ),
    ("settings.py", "generation_timeout"): (PROCESSOR, "generating one problem"),
    ("inference/template_trial.py", "TRIAL_SECONDS"): (
        PROCESSOR,
        "a chat template that renders a question at the start",
    ),
    ("sandbox/pool.py", "FIXED_ITEM_SECONDS"): (
        PROCESSOR,
        "at least, generating one item of an evaluation set or a suite",
    ),
    ("sandbox/pool.py", "timeout"): (
        PROCESSOR,
        "reading the levels and tasks of the library or of a module",
    ),
    ("sandbox/_fork_server.py", "START_TIMEOUT"): (
        PROCESSOR,
        "the imports and the warm-up of worker processes",
    ),
    ("sandbox/_verifier_host.py", "IMPORT_SECONDS"): (
        PROCESSOR,
        "finding what the verifiers of a module import when they are called",
    ),
    ("sandbox/worker_groups.py", "HOST_GRACE_SECONDS"): (
        PROCESSOR,
        "what a verifier host may take beyond its children's limits",
    ),
    # A busy machine
    ("sandbox/worker_groups.py", "FIRST_TRY_SECONDS"): (
        WALL,
        "the first try of an answer that the machine starves",
    ),
    ("sandbox/worker_groups.py", "SECOND_TRY_SECONDS"): (
        WALL,
        "its second try; then it is `unscored`",
    ),
    ("sandbox/pool.py", "GROUP_SECONDS"): (
        WALL,
        "all answers of a group; those that were not tried are `unscored`",
    ),
    # Outside
    ("sandbox/_fork_server.py", "KILL_SECONDS"): (
        WALL,
        "the system, which ends a killed worker",
    ),
    ("reasoning_gym_environment.py", "reach_seconds"): (
        WALL,
        "servers that come up at the start",
    ),
    ("reasoning_gym_environment.py", "failing_seconds"): (
        WALL,
        "nothing but failed requests, in `process` and `evaluate`",
    ),
    ("reasoning_gym_environment.py", "outage_seconds"): (
        WALL,
        "nothing but failed requests of an evaluation, while serving",
    ),
    ("inference/errors.py", "CONNECT_SECONDS"): (
        WALL,
        "connecting to an inference server",
    ),
    ("inference/servers.py", "ClientTimeout(total)"): (
        WALL,
        "an inference server's sign of life",
    ),
    ("inference/early_check.py", "EARLY_SECONDS"): (
        WALL,
        "an inference server's first answers, about its key, models and context",
    ),
    ("inference/servers.py", "PROBE_SECONDS"): (
        WALL,
        "an inference server's reply to a probe at the start",
    ),
    ("inference/liveness.py", "LONG_SILENCE"): (
        WALL,
        "an inference server's silence before the log says so; it ends no request",
    ),
    ("util/keep_alive.py", "IDLE_SECONDS"): (
        WALL,
        "a silent connection, before the kernel asks its other end three times in 30 s",
    ),
    ("inference/failover.py", "COOLING_SECONDS"): (
        WALL,
        "a failed inference server that others replace",
    ),
    ("inference/rate_limit.py", "patience"): (
        WALL,
        "nothing but refusals for too many requests",
    ),
    ("inference/servers.py", "connector(keepalive_timeout)"): (
        WALL,
        "an idle connection to an inference server",
    ),
    ("atropos/api_client.py", "patience"): (WALL, "the Atropos API's answer"),
    ("atropos/api_client.py", "HANG_SECONDS"): (
        WALL,
        "the Atropos API's silence before the log says so",
    ),
    ("atropos/trainer_api.py", "CLOSE_SECONDS"): (
        WALL,
        "farewell to the Atropos API, and deliveries at the end",
    ),
    ("service/client.py", "patience"): (
        WALL,
        "repeating a request to a service that is busy or gone",
    ),
    ("util/outages.py", "wait_for()"): (WALL, "connecting to a server at the start"),
    ("evaluation/evaluate.py", "timeout"): (
        WALL,
        "a user's function that is evaluated; the reply's item is then `unscored`",
    ),
    ("service/client.py", "timeout"): (WALL, "a service's whole reply"),
    ("service/_limits.py", "seconds"): (WALL, "the body of a client's request"),
    ("service/server.py", "HEAD_SECONDS"): (WALL, "the head of a client's request"),
    ("service/server.py", "BODY_SECONDS"): (
        WALL,
        "the body of a request where the application has no deadline",
    ),
    ("service/server.py", "REPLY_SECONDS"): (WALL, "a client that reads a reply"),
    ("service/server.py", "KEEP_ALIVE_SECONDS"): (
        WALL,
        "an idle connection of a client",
    ),
    ("service/_streams.py", "patience"): (WALL, "the disk that keeps streams"),
    ("storage/checkpoints.py", "patience"): (
        WALL,
        "another process that holds the checkpoints",
    ),
    ("util/concurrency.py", "patience"): (WALL, "the disk, at the end"),
    ("util/concurrency.py", "HANG_SECONDS"): (
        WALL,
        "the disk's silence before the log says so",
    ),
    ("evaluation/store.py", "close(patience)"): (
        WALL,
        "the disk, at the end of an evaluation",
    ),
    ("proof/endpoints.py", "REPLY_SECONDS"): (
        WALL,
        "the reply of a scoring endpoint to `prove --url`",
    ),
    ("report/live_server.py", "DRAIN_SECONDS"): (
        WALL,
        "open requests of a browser, at the end",
    ),
    ("report/process.py", "CLOSE_SECONDS"): (
        WALL,
        "the process that draws the page, at its end",
    ),
}
"""What each timeout is for. Ours come first."""

NO_TIMEOUTS: dict[Key, str] = {
    ("atropos/failures.py", "PATIENCE_WITH_FILTERS"): "a number of failures",
    ("atropos/failures.py", "patience"): "a number of failures",
    ("atropos/run.py", "DRAWING_SECONDS"): "a pause of the loop",
    ("atropos/run.py", "POLL_SECONDS"): "an interval",
    ("evaluation/evaluate.py", "generation_timeout"): "the option's",
    ("evaluation/evaluate.py", "verify_timeout"): "the option's",
    ("gym/asynchronous.py", "generation_timeout"): "the option's",
    ("gym/asynchronous.py", "verify_timeout"): "the option's",
    ("inference/liveness.py", "CHECK_SECONDS"): "an interval",
    (
        "inference/liveness.py",
        "QUIET_SECONDS",
    ): "when a server is asked for a sign of life",
    ("inference/liveness.py", "SILENT_SECONDS"): "when other servers come first",
    ("inference/liveness.py", "STEADY_SECONDS"): "when a silent server counts as back",
    ("proof/clock.py", "REFRESH_SECONDS"): "an interval",
    ("proof/endpoint_proof.py", "SLOW_SECONDS"): "when a verdict is a finding",
    ("report/health.py", "GROUP_SECONDS"): "when a page warns",
    ("report/health.py", "PAST_SECONDS"): "when a page warns",
    ("report/health.py", "RATE_SECONDS"): "the span of a rate",
    ("report/live.py", "NEW_SECONDS"): "the age of a run",
    ("report/live.py", "look_seconds"): "an interval",
    ("report/live_server.py", "POLL_SECONDS"): "an interval",
    ("report/times.py", "DAY_SECONDS"): "a unit",
    ("problems/selection.py", "MAX_TIMEOUTS"): "a number of tries",
    ("rollouts/backoff.py", "POLL_SECONDS"): "an interval",
    ("sandbox/_children.py", "patience"): "given by the pool",
    ("sandbox/_protocol.py", "TIMEOUT"): "an outcome",
    ("sandbox/_work_clock.py", "FIRST_LOOK_SECONDS"): "an interval",
    ("sandbox/_work_clock.py", "LOOK_SECONDS"): "an interval",
    ("sandbox/pool.py", "generation_timeout"): "the option's",
    ("sandbox/pool.py", "verify_timeout"): "the option's",
    ("scoring/grading.py", "verify_timeout"): "the option's",
    ("service/_queue.py", "NO_VERDICT_SECONDS"): "an estimate",
    ("service/_queue.py", "QUICK_SECONDS"): "an estimate",
    ("service/_queue.py", "REMEMBERED_SECONDS"): "the span of a memory",
    ("storage/rows.py", "verify_seconds"): "a measurement",
    ("storage/run_record.py", "LEAST_WAIT_SECONDS"): "a threshold",
    ("storage/run_record.py", "LOOK_SECONDS"): "an interval",
    ("storage/run_record.py", "RECORD_SECONDS"): "an interval",
    ("util/concurrency.py", "SWITCH_SECONDS"): "an interval",
    ("util/concurrency.py", "wait(timeout)"): "an interval",
    ("util/keep_alive.py", "INTERVAL_SECONDS"): "an interval",
}
"""What is only named like a timeout, and what it is."""


def number(node: ast.expr | None) -> float | None:
    """Return a literal number, also as the default of an `option`; None for anything else."""
    if isinstance(node, ast.Call) and node.args:
        node = node.args[0]
    if isinstance(node, ast.Attribute) and node.attr == "inf":
        return math.inf
    try:
        value = ast.literal_eval(node) if node is not None else None
    except ValueError:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None


def named_values(node: ast.AST) -> list[tuple[str, ast.expr | None]]:
    """Return what a node gives a name: by an assignment, as a default, or in a call."""
    if isinstance(node, ast.Assign):
        return [(ast.unparse(target), node.value) for target in node.targets]
    if isinstance(node, ast.AnnAssign):
        return [(ast.unparse(node.target), node.value)]
    if isinstance(node, ast.arguments):
        positional = [*node.posonlyargs, *node.args]
        last = positional[len(positional) - len(node.defaults) :]
        pairs = [
            *zip(last, node.defaults, strict=True),
            *zip(node.kwonlyargs, node.kw_defaults, strict=True),
        ]
        return [(argument.arg, default) for argument, default in pairs]
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func).rpartition(".")[2]
        if called == "wait_for" and len(node.args) == 2:
            return [("wait_for()", node.args[1])]
        return [
            (f"{called}({keyword.arg})", keyword.value) for keyword in node.keywords
        ]
    return []


def numbers(file: Path) -> Iterator[tuple[str, float]]:
    """Yield the names and values of a file's numbers."""
    for node in ast.walk(ast.parse(file.read_text())):
        for name, node_value in named_values(node):
            value = number(node_value)
            if value is not None:
                yield name.removeprefix("self."), value


def found() -> dict[Key, float]:
    """Return the numbers of the package that are named like timeouts, or known as such."""
    values: dict[Key, float] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        path = file.relative_to(PACKAGE).as_posix()
        if path.startswith("demo/"):  # a simulation, whose times are its subject
            continue
        for name, value in numbers(file):
            if NAMED_LIKE_TIMEOUTS.search(name.rstrip(")")) or (path, name) in TIMEOUTS:
                values.setdefault((path, name), value)
    return values


def table() -> str:
    """Return a line for each timeout; raise ValueError where the code has others."""
    values = found()
    unknown = sorted(values.keys() - TIMEOUTS.keys() - NO_TIMEOUTS.keys())
    gone = sorted((TIMEOUTS.keys() | NO_TIMEOUTS.keys()) - values.keys())
    if unknown or gone:
        raise ValueError(
            f"{Path(__file__).name}: say what these are for: {unknown}; the code lacks {gone}"
        )
    lines = [
        "| what may take so long | seconds | of | where |",
        "| --- | --- | --- | --- |",
    ]
    for (file, name), (kind, about) in TIMEOUTS.items():
        seconds = values[file, name]
        shown = "no limit" if math.isinf(seconds) else f"{seconds:g}"
        lines.append(f"| {about} | {shown} | {kind} time | `{name}`, `{file}` |")
    return "\n".join(lines)


def main() -> int | str:
    try:
        return write_table(PAGE, "timeout", table())
    except ValueError as error:
        return str(error)


if __name__ == "__main__":
    sys.exit(main())
