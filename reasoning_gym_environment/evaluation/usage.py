"""The tokens of an evaluation: what it will request, what it has used, and what that costs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ..errors import FixableError
from ..inference.usage import RequestPlan, RequestUsage
from ..storage.dumps import read_rows
from ..util.concurrency import DaemonWriter
from ..util.files import append_whole, write_whole
from ..util.values import convert, group_by, table
from .evaluation_settings import EvaluationSettings
from .options import Price

USAGE = "usage.jsonl"

MAX_TASKS = 10
"""How many tasks the table shows, those with the most tokens."""


class UsageRow(RequestUsage, frozen=True, kw_only=True):
    """The tokens of an answered request for a task; without one, it was a check of the server."""

    task: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenSums:
    """Sums over answered requests.

    Attributes:
        reasoning_tokens: None if no server tells.
        counted_requests: of which the tokenizer has counted the tokens, as no server tells them.
        unknown_requests: of which nobody tells or counts them.
    """

    requests: int
    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int | None
    counted_requests: int
    unknown_requests: int

    @classmethod
    def of(cls, rows: Sequence[UsageRow]) -> TokenSums:
        """Return the sums of some rows."""
        reasoning = [
            row.reasoning_tokens for row in rows if row.reasoning_tokens is not None
        ]
        return cls(
            requests=len(rows),
            prompt_tokens=sum(row.prompt_tokens or 0 for row in rows),
            completion_tokens=sum(row.completion_tokens or 0 for row in rows),
            reasoning_tokens=sum(reasoning) if reasoning else None,
            counted_requests=sum(row.counted_by == "tokenizer" for row in rows),
            unknown_requests=sum(row.counted_by is None for row in rows),
        )

    def to_json(self, price: Price | None) -> dict[str, Any]:
        """Return plain JSON, with the cost in dollars at a price."""
        numbers = asdict(self)
        if price is not None:
            numbers["cost"] = self.cost(price)
        return numbers

    def cost(self, price: Price) -> float:
        """Return the dollars that the known tokens cost."""
        return price.cost(self.prompt_tokens, self.completion_tokens)


class UsageLog:
    """The tokens of an evaluation's answered requests, on disk when each reply has arrived.

    So they count those whose completions are lost, since they were repeated or interrupted.
    """

    def __init__(self, folder: Path, disk: DaemonWriter) -> None:
        """Open a folder's log; raise FixableError if it can't be read."""
        self._path = folder / USAGE
        self._disk = disk
        self._rows: list[UsageRow] = []
        if self._path.exists():
            self._rows = _rows_in(self._path)
            # without a line that was torn off
            write_whole(self._path, b"".join(map(_line, self._rows)).decode())

    def add(self, usage: RequestUsage, task: str | None = None) -> None:
        """Add a request's tokens; without a task, it was a check of the server."""
        row = UsageRow(**msgspec.structs.asdict(usage), task=task)
        self._rows.append(row)
        done = self._disk.submit(partial(append_whole, self._path, _line(row)))
        # A disk that fails loses the sample too, which says so.
        done.add_done_callback(asyncio.Future.exception)

    @property
    def total(self) -> TokenSums:
        """Of all requests, checks included."""
        return TokenSums.of(self._rows)

    @property
    def checks(self) -> TokenSums:
        """Of the checks of the server at the start."""
        return TokenSums.of([row for row in self._rows if row.task is None])

    @property
    def by_task(self) -> dict[str, TokenSums]:
        """Of each task, in alphabetical order."""
        by_name = group_by(lambda row: row.task or "", self._rows)
        by_name.pop("", None)
        return {task: TokenSums.of(rows) for task, rows in sorted(by_name.items())}

    def to_json(self, price: Price | None) -> dict[str, Any]:
        """Return the content of `usage` in `metrics.json`."""
        by_task = {task: sums.to_json(price) for task, sums in self.by_task.items()}
        return {
            **self.total.to_json(price),
            "price": None if price is None else price._asdict(),
            "checks": self.checks.to_json(price),
            "by_task": by_task,
        }


def _line(row: UsageRow) -> bytes:
    return msgspec.json.encode(row) + b"\n"


def _rows_in(path: Path) -> list[UsageRow]:
    try:
        return [convert(row, UsageRow) for row in read_rows(path).rows]
    except ValueError as error:
        raise FixableError(
            f"{path} can't be read ({error}): delete it; the tokens of requests until now are then "
            "not counted"
        ) from error


def describe_plan(plans: Sequence[RequestPlan], settings: EvaluationSettings) -> str:
    """Say what an evaluation will request, and what that costs at most."""
    requests = sum(plan.requests for plan in plans)
    prompt = sum(plan.prompt_tokens for plan in plans)
    completion = sum(plan.max_completion_tokens for plan in plans)
    about = ""
    source = "counted with the tokenizer"
    if any(plan.is_estimate for plan in plans):
        about = "about "
        source = "estimated from the texts, as no --env.tokenizer_name is set"
    parts = [
        f"{settings.model} gets {requests:,} requests: {about}{prompt:,} prompt tokens ({source}) "
        f"and at most {completion:,} completion tokens"
    ]
    if settings.price is not None:
        dollars = settings.price.cost(prompt, completion)
        parts.append(f", at most {about}${dollars:,.2f}")
    if settings.among is not None:
        prices = settings.among.prices
        parts.append(f"; each of the {len(prices)} models gets the same")
        if all(prices):
            dollars = sum(price.cost(prompt, completion) for price in prices if price)
            parts.append(f", all together at most {about}${dollars:,.2f}")
    return "".join([*parts, "; repeated requests come on top"])


def usage_table(log: UsageLog, model: str, price: Price | None) -> str:
    """Return the sums of an evaluation's tokens, by model and by task; empty without requests."""
    if not log.total.requests:
        return ""
    legend = {"reasoning": "of the completion tokens; - where the server does not tell"}
    return table(list(_rows(log, model, price)), legend=legend)


def _rows(log: UsageLog, model: str, price: Price | None) -> Iterator[Sequence[str]]:
    header = ["tokens", "requests", "prompt", "completion", "reasoning"]
    yield [*header, "cost in $"] if price else header
    total = log.total
    yield _row(model, total, price)
    if log.checks.requests:
        yield _row("  checks at the start", log.checks, price)
    yield from _task_rows(log.by_task, price)
    if total.counted_requests:
        yield (
            f"{total.counted_requests:,} requests: counted with the tokenizer, as the server does "
            "not tell"
        )
    if total.unknown_requests:
        yield (
            f"{total.unknown_requests:,} requests: the server does not tell, so the sums lack them"
        )


def _task_rows(
    by_task: Mapping[str, TokenSums], price: Price | None
) -> Iterator[Sequence[str]]:
    def tokens(entry: tuple[str, TokenSums]) -> int:
        return entry[1].prompt_tokens + entry[1].completion_tokens

    most = sorted(by_task.items(), key=tokens, reverse=True)[:MAX_TASKS]
    for task, sums in most:
        yield _row(f"  {task}", sums, price)
    if len(by_task) > MAX_TASKS:
        yield f"  and {len(by_task) - MAX_TASKS} more tasks: usage in metrics.json"


def _row(title: str, sums: TokenSums, price: Price | None) -> list[str]:
    is_known = sums.unknown_requests < sums.requests
    numbers = (sums.prompt_tokens, sums.completion_tokens)
    cells = [f"{number:,}" if is_known else "-" for number in numbers]
    reasoning = sums.reasoning_tokens
    cells.append("-" if reasoning is None else f"{reasoning:,}")
    if price is not None:
        cells.append(f"{sums.cost(price):,.4f}" if is_known else "-")
    return [title, f"{sums.requests:,}", *cells]
