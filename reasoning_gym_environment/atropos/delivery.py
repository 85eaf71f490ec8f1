"""Groups on their way to Atropos's API: rows, checks, JSON, delivery, and the API's client.

The API accepts nearly anything, and a bad group then costs a whole batch. 128,000 tokens with
logprobs are 9 MB of Python numbers, which the garbage collector looks at one by one; as arrays they
are 1.5 MB that it never sees.

The client retries, and notices when the API was restarted. The API keeps its environments in a list
in memory. After a restart it gives our id to the next environment and would take our groups under
that name. So the client registers a sentinel: an environment of hardly any weight with a unique
name. An API that doesn't know the sentinel was restarted.

A killed process stays connected there, a ghost: it lowers the weights of others, and no batch comes
without its `min_batch_allocation`. So a replica leaves a note to the next process of its name: its
id, and a witness, registered once at the API that gave the id. No other API knows the witness, for
whoever asks one uses the note up first. A restarted API may know the sentinel, from a verification.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gzip
import io
import json
import logging
import math
import re
import time
import uuid
from array import array
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
import numpy as np
from msgspec import Meta

from ..errors import TRY_AGAIN, ConfigurationError, FixableError
from ..inference.errors import error_message, start_of_body
from ..records import MASKED, Attempt, GroupResult, Problem, Status
from ..rollouts.metrics import GroupOutcome, Statistics, line_logger
from ..util.concurrency import LARGE, DaemonWriter, offload
from ..util.files import append_whole
from ..util.outages import LOG_INTERVAL, Outage, Retry, UnreachableError, is_loopback
from ..util.values import replace_surrogates, validate

logger = logging.getLogger(__name__)

COLUMNS = ("tokens", "masks", "inference_logprobs")
"""The parts of a group that have a row of numbers for each completion."""

_ZEROED = "set_advantage_to_zero"

_CLOSE_SECONDS = 5.0
"""How long groups in flight and the goodbye have to arrive at the end of a run."""


def to_scored_data_group(
    group: GroupResult,
    prompt: list[dict[str, str]],
    *,
    generation_params: Mapping[str, Any],
    mask_truncated: bool,
    include_messages: bool,
) -> dict[str, Any]:
    """Return all attempts as rows; the advantage of unscored, empty and masked ones is zero.

    `inference_logprobs` is empty, not None, without logprobs: Atropos's example trainer takes its
    length. Rows of numbers are lists, or the arrays of the completions.
    """

    def numbers(row: Sequence[float]) -> Sequence[float]:
        return row if isinstance(row, array) else list(row)

    def overrides(attempt: Attempt) -> dict[str, Any]:
        completion = attempt.completion
        unscored = attempt.verdict.status is Status.UNSCORED or not completion.completion_tokens
        masked = mask_truncated and completion.truncated
        return {_ZEROED: True} if unscored or masked else {}

    completions = [attempt.completion for attempt in group.attempts]
    return {
        "tokens": [numbers(c.tokens) for c in completions],
        "masks": [numbers(c.masks) for c in completions],
        "scores": list(group.rewards),
        "inference_logprobs": [numbers(c.logprobs) for c in completions if c.logprobs is not None],
        "overrides": [overrides(attempt) for attempt in group.attempts],
        "generation_params": dict(generation_params),
        "messages": [
            [*prompt, {"role": "assistant", "content": replace_surrogates(c.text)[0]}]
            for c in completions
        ]
        if include_messages
        else None,
        "statuses": [attempt.verdict.status.value for attempt in group.attempts],
        "answers": [a.answer and replace_surrogates(a.answer)[0] for a in group.attempts],
    }


def task_of(item: Any) -> str:
    """Return an item's task, for messages."""
    return item.recipe.task if isinstance(item, Problem) else "a subclass's item"


def completed(group: Mapping[str, Any], decode: Callable[[Any], str] | None) -> dict[str, Any]:
    """Return a group with what a subclass's may lack, as Atropos's own class completes it.

    Args:
        decode: returns the text of a row, for messages; None leaves them out.
    """
    columns: dict[str, Any] = {
        name: [] for name in ("tokens", "masks", "scores", "inference_logprobs")
    }
    optional = dict.fromkeys(("messages", "group_overrides", "ref_logprobs"))
    distilled = dict.fromkeys(("distill_token_ids", "distill_logprobs"))
    given = {n: v for n, v in group.items() if v is not None and not (type(v) is list and not v)}
    made: dict[str, Any] = {**optional, **distilled, **columns, **given}
    made.setdefault("overrides", [{} for _ in made["tokens"]])
    if decode is not None and made["messages"] is None:
        texts = [decode(list(row)) for row in made["tokens"]]
        made["messages"] = [[{"role": "user", "content": text}] for text in texts]
    return made


def group_error(group: Mapping[str, Any], *, rows: int, vocabulary: int) -> str | None:
    """Return what is wrong with a group, or None if it is valid.

    A valid group has `rows` rows of tokens, masks, scores, overrides and, unless there are none at
    all, logprobs. A row has a trained token, or the advantage set to zero.
    """
    for name in ("tokens", "masks", "scores", "overrides", "inference_logprobs"):
        found = len(group[name])
        if found != rows and (found or name != "inference_logprobs"):
            return f"{found} rows of {name}, expected {rows}"
    logprobs = group["inference_logprobs"] or [None] * rows
    parts = zip(group["tokens"], group["masks"], logprobs, strict=True)
    for number, (tokens, masks, row) in enumerate(parts):
        error = _row_error(tokens, masks, row, vocabulary)
        if error:
            return f"row {number} has {error}"
        if not trained_tokens(masks) and not group["overrides"][number].get(_ZEROED):
            return f"row {number} has no trained token"
    for score in group["scores"]:
        if type(score) is bool or not isinstance(score, int | float) or not math.isfinite(score):
            return f"{score!r} is not a score"
    return None


def _row_error(
    tokens: Sequence[Any],
    masks: Sequence[Any],
    logprobs: Sequence[Any] | None,
    vocabulary: int,
) -> str | None:
    if len(tokens) != len(masks):
        return f"{len(tokens)} tokens and {len(masks)} masks"
    ids = _numbers(tokens, int)
    labels = _numbers(masks, int)
    wrong = ~((ids >= 0) & (ids < vocabulary))
    if wrong.any():
        token = tokens[int(wrong.argmax())]
        return f"{token!r} among its tokens, not an id of a vocabulary of {vocabulary}"
    wrong = (labels != MASKED) & (labels != ids)
    if wrong.any():
        return f"the mask {masks[int(wrong.argmax())]!r}, neither {MASKED} nor its token"
    if logprobs is None:
        return None
    if len(logprobs) != len(masks):
        return f"{len(masks)} tokens and {len(logprobs)} logprobs"
    values = _numbers(logprobs, float)
    wrong = ~np.isfinite(values)
    if wrong.any():
        return f"the logprob {logprobs[int(wrong.argmax())]!r}"
    trained = values[labels != MASKED]
    if len(trained) and trained.max() > 0:
        return f"the logprob {float(trained.max())!r} of a trained token, above 0"
    return None


def _numbers(row: Sequence[Any], kind: type) -> np.ndarray[Any, Any]:
    """Return a row as doubles, which hold all token ids; NaN for what is not a number of the kind.

    A float is a float or an integer; infinite is what no double can hold.
    """
    if isinstance(row, array) and row.typecode == ("i" if kind is int else "d"):
        return np.asarray(row, np.double)
    kinds = {int} if kind is int else {int, float}
    if {*map(type, row)} <= kinds:
        with contextlib.suppress(OverflowError):
            return np.array(row, np.double)

    def double(value: Any) -> float:
        try:
            return float(value) if type(value) in kinds else math.nan
        except OverflowError:
            return math.inf

    return np.array([double(value) for value in row])


def trained_tokens(masks: Sequence[int]) -> int:
    """Return how many tokens of a row are trained on."""
    if isinstance(masks, array):
        return int(np.count_nonzero(np.asarray(masks) != MASKED))
    return len(masks) - masks.count(MASKED)


def pack(body: Mapping[str, Any]) -> bytes:
    """Return strict JSON of Unicode and finite numbers; raises ValueError and TypeError.

    The columns of a group must be sound.
    """
    columns = {name: body[name] for name in COLUMNS if body.get(name)}
    others = {name: value for name, value in body.items() if name not in columns}
    rest = json.dumps(others, allow_nan=False, ensure_ascii=False).encode()
    if not columns:
        return rest

    def as_list(row: Any) -> list[Any]:
        if isinstance(row, array):
            return nine_digits(row) if row.typecode == "d" else row.tolist()
        raise TypeError(f"{type(row).__name__} is not JSON serializable")

    numbers = msgspec.json.encode(columns, enc_hook=as_list)
    if b"null" in numbers:
        raise ValueError("numbers that are not finite are not JSON")
    begin = rest[:-1] + b"," if others else b"{"
    return b"".join([begin, memoryview(numbers)[1:]])


def nine_digits(row: array[float]) -> list[float]:
    """Round numbers to nine digits and at most 22 decimals; all stay if one isn't finite.

    Nine digits tell float32 numbers apart. Servers send such as doubles, whose 17 digits take the
    API nearly twice the time to read.
    """
    values = np.asarray(row)
    if not np.isfinite(values).all():
        return row.tolist()
    with np.errstate(divide="ignore"):  # of 0
        decimals = 8 - np.floor(np.log10(np.abs(values)))
    powers = np.array([float(10**n) for n in range(23)])  # all exact, so that a quotient is as well
    power = powers[np.clip(decimals, 0, 22).astype(np.intp)]
    rounded: list[float] = (np.rint(values * power) / power).tolist()
    return rounded


class ApiRefusedError(FixableError):
    """The API, or a proxy in front of it, refused a request with a 4xx status."""


class LostStateError(FixableError):
    """The API was restarted and does not know this environment."""

    exit_status = TRY_AGAIN


class _FailingError(Exception):
    """A transient error status or an invalid reply."""


_COUNT: Any = Annotated[int, Meta(ge=0, lt=2**53)]
_LIMIT: Any = Annotated[int, Meta(ge=-1)]  # -1 for none
_REPLIES: Mapping[str, Mapping[str, Any]] = {
    "/wandb_info": {"group": str | None, "project": str | None},
    "/info": {"batch_size": _LIMIT, "max_token_len": _LIMIT},
    "/status-env": {
        **dict.fromkeys(("current_step", "queue_size", "self_queue_size"), _COUNT),
        "max_group_size": Annotated[int, Meta(ge=1)],
        "env_weight": Annotated[float, Meta(ge=0, le=1000)],
        "unallocated_fraction": Annotated[float, Meta(ge=0, le=1)],
    },
    "/register-env": {
        **dict.fromkeys(("env_id", "starting_step"), _COUNT),
        **dict.fromkeys(("checkpoint_interval", "num_steps"), int),
        "checkpoint_dir": Annotated[str, Meta(pattern="^[^\0]*$")],
        "wandb_name": Annotated[str, Meta(pattern="^[^\0]*_[0-9]{1,9}$")],
    },
}
"""Types of the values in the API's replies, by path."""


_TRANSIENT = (aiohttp.ClientError, OSError, asyncio.TimeoutError, _FailingError)


class TrainerApi:
    """A client that retries requests while a retry may help.

    Attributes:
        waiting: why the trainer waits, if it has taken no batch for a minute; else empty.
        witness: the registration that proves, when it is known, that an API was not restarted.
    """

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.patience = 60.0  # seconds after which a request fails for good
        self.lost: LostStateError | None = None  # raised by all once the API has lost its state
        self._url = url  # without a trailing slash
        self._is_away = not is_loopback(urlsplit(url).hostname or "")
        self._outage = Outage(server=f"The Atropos API at {url}")
        self._sentinel = _bystander(f"sentinel-{uuid.uuid4()}")
        self.witness = _bystander(f"witness-{uuid.uuid4()}")
        self._sentinels = 0
        self._unverified = False
        self._verifying = asyncio.Lock()
        self.waiting = ""
        self._clock = clock
        self._step: int | None = None  # at the last `status`
        self._step_since = 0.0
        self._weight = 1.0  # that of an environment alone

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | Mapping[str, Any] = b"{}",
        *,
        groups: int = 0,
    ) -> Any:
        """Send a request, which may have groups, until the API gives a valid reply; return that.

        Raises:
            ApiRefusedError: the status is 4xx, except 408 and 429.
            LostStateError: the API lost its state.
            UnreachableError: the API did not answer within `patience`.
        """
        content = body if isinstance(body, bytes) else pack(body)
        retry = Retry(self.patience)
        with self._outage.request() as this:
            while True:
                try:
                    await self._require_same_api()
                    return await self._ask(this, method, path, content)
                except _TRANSIENT as error:
                    self._unverified = bool(self._sentinels)
                    why = str(error) or f"no answer within {self.patience:g} s"
                    self._outage.record_failure(why, lost=0, request=this)
                    if not await retry.wait():
                        self._outage.lost += groups
                        raise UnreachableError(
                            f"the Atropos API at {self._url} has not answered for "
                            f"{self.patience:g} s ({why}): start it and its trainer, then this "
                            "environment again"
                        ) from error

    async def _ask(
        self,
        this: object,
        method: str,
        path: str,
        body: bytes,
    ) -> Any:
        """Send a request once; log it as failing while it hangs."""
        asked = asyncio.ensure_future(self._once(method, path, body))
        try:
            await asyncio.wait({asked}, timeout=8.0)
            if not asked.done():
                self._outage.record_failure(
                    "it hangs",
                    lost=0,
                    already=8.0,
                    request=this,
                )
            reply = await asked
        except ApiRefusedError:
            self._outage.end(this)
            raise
        finally:
            asked.cancel()
        self._outage.end(this)
        return reply

    async def _once(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        """Send a request once; return its reply, whose values must have their types."""
        headers = {"Content-Type": "application/json"}
        if len(body) >= 1024 and self._is_away:  # level 2 takes twice the time for a few percent
            body = await asyncio.to_thread(gzip.compress, body, 1)
            headers["Content-Encoding"] = "gzip"
        url = self._url + path
        limit = aiohttp.ClientTimeout(total=self.patience)
        async with (
            aiohttp.ClientSession(timeout=limit) as session,
            session.request(
                method,
                url,
                data=io.BytesIO(body),
                headers=headers,
            ) as response,
        ):
            text = await start_of_body(response)
        if not response.ok:
            reason = f"{response.status} {response.reason}: {error_message(text)}"
            if response.status >= 500 or response.status in (408, 429):
                raise _FailingError(reason)
            raise ApiRefusedError(f"the Atropos API refuses {url} with {reason}")
        try:
            reply = json.loads(text)
        except (RecursionError, ValueError) as error:
            raise _FailingError(f"no JSON: {error_message(text)}") from error
        name = ""
        try:
            values = validate(reply, dict[str, Any])
            waits = path == "/register-env" and values.get("status") != "success"  # for the trainer
            for name, expected in ({} if waits else _REPLIES.get(path, {})).items():
                validate(values.get(name), expected)
        except ValueError as error:
            place = f"{name}: " if name else ""
            raise _FailingError(f"invalid reply to {path}: {place}{error}") from error
        return values

    async def until_trainer(self, *request: Any, interval: float) -> dict[str, Any]:
        """Repeat a registration or question until there is a trainer; log the wait."""
        waiting = Outage(interval=interval)
        while True:
            reply: dict[str, Any] = await self.request(*request)
            if reply.get("status") == "success" or reply.get("project") is not None:
                return reply
            waiting.record_failure()
            if waiting.should_log:
                line_logger.warning(
                    "Waiting for a trainer, %.0f s: start it with the Atropos API at %s; to try "
                    "without one, run `reasoning-gym-environment demo --trainer-only %s`",
                    *(waiting.seconds, self._url, self._url),
                )
            await asyncio.sleep(1)

    def note(self, env_id: int) -> str:
        """Return what `disconnect_ghost` needs if this process is killed."""
        return f"environment {env_id} {self.witness['desired_name']}"

    def warn_of_ghost(self, env_id: int, min_batch_allocation: float | None) -> None:
        """Say what stays at the API if this process is killed, and the ways out."""
        logger.log(
            logging.INFO if min_batch_allocation is None else logging.WARNING,
            "If this process is killed, the Atropos API counts environment %d as connected: it "
            "lowers env_weight, and no batch comes without its min_batch_allocation. A restart "
            "under the same --env.replica disconnects it, where checkpoint folders have locks; "
            'else POST {"env_id": %d} to %s/disconnect-env',
            *(env_id, env_id, self._url),
        )

    async def disconnect_ghost(self, note: str, *, keep: Callable[[str], object]) -> None:
        """Disconnect a former process's environment, unless the API was restarted since.

        `keep` gets the note of an API that knows it: the next process may need it. Failures are
        logged.
        """
        found = re.fullmatch(r"environment (\d+) (witness-[\w-]+)", note)
        if not found:
            return
        env_id = int(found[1])
        try:  # the witness is asked once: a second time, each API knows it
            reply = await self._once("POST", "/register-env", pack(_bystander(found[2])))
            if _number_of_namesakes(reply) < 1:
                return
            keep(note)
            logger.info("Disconnecting environment %d of this replica's last process", env_id)
            await self.request("POST", "/disconnect-env", {"env_id": env_id})
        except (*_TRANSIENT, FixableError) as error:
            self._warn_of_connected(env_id, error)

    async def status(
        self,
        env_id: int,
        *,
        group_size: int,
        batch_size: int,
        inference_weight: float,
        min_batch_allocation: float | None,
    ) -> dict[str, Any]:
        """Return an environment's status, and log what slows it down.

        Raises the errors of `request`; ConfigurationError if an only environment fills no batch.
        """
        status: dict[str, Any] = await self.request("GET", "/status-env", {"env_id": env_id})
        if self._step is None and batch_size > 0 and batch_size % group_size:
            reason = _unfilled(batch_size, group_size)
            if status["env_weight"] == 1:
                raise ConfigurationError(reason)
            logger.warning("%s", reason)
        if inference_weight == -1:
            status["env_weight"] = 1.0
        weight = round(status["env_weight"], 2)
        now = self._clock()
        if status["current_step"] != self._step:
            self._step = status["current_step"]
            self._step_since = now
        if weight < self._weight:
            logger.warning(
                "env_weight fell from %.2f to %.2f, and with it the requests at once: the API "
                "counts other environments as connected, killed ones included",
                *(self._weight, weight),
            )
        self._weight = weight
        seconds = now - self._step_since
        groups = status["queue_size"]
        self.waiting = ""
        if seconds >= LOG_INTERVAL and groups:
            self.waiting = (
                f"the trainer has taken no new batch for {seconds:.0f} s: {groups} groups of "
                f"{group_size} wait, it needs {batch_size}"
            )
            others = 1 - status["unallocated_fraction"] - (min_batch_allocation or 0)
            if others > 0.001:
                self.waiting += (
                    f", of which {others:.0%} must come from other environments, killed ones "
                    "included (min_batch_allocation)"
                )
        return status

    async def register_sentinel(self) -> None:
        """Register the sentinel, right after this environment; raises the errors of `request`."""
        reply = await self.request("POST", "/register-env", self._sentinel)
        self._sentinels = _number_of_namesakes(reply) + 1
        if self._sentinels < 1:
            raise self.mark_lost("it was restarted while this environment registered")

    async def _require_same_api(self) -> None:
        """Raise LostStateError if the API no longer knows the sentinel after a failed request."""
        if self.lost:
            raise self.lost
        async with self._verifying:  # registrations are numbered: two could overtake each other
            if not self._unverified:
                return
            reply = await self._once("POST", "/register-env", pack(self._sentinel))
            number = _number_of_namesakes(reply)
            if number < self._sentinels:
                raise self.mark_lost("it does not know this environment")
            self._sentinels = number + 1
            self._unverified = False

    async def disconnect(self, env_id: int) -> None:
        """Tell the API that an environment leaves; failures are logged."""
        if self.lost:  # another environment may have our id
            return
        try:
            goodbye = self._once("POST", "/disconnect-env", pack({"env_id": env_id}))
            await asyncio.wait_for(goodbye, _CLOSE_SECONDS)
        except (*_TRANSIENT, ApiRefusedError) as error:
            self._warn_of_connected(env_id, error)

    def _warn_of_connected(self, env_id: int, error: Exception) -> None:
        logger.warning(
            "Could not disconnect environment %d (%s): unless the Atropos API was restarted since, "
            'POST {"env_id": %d} to %s/disconnect-env',
            *(env_id, str(error) or "no answer", env_id, self._url),
        )

    def mark_lost(self, reason: str) -> LostStateError:
        """Fail all requests from now on; return the error that ends the run."""
        self.lost = self.lost or LostStateError(
            f"the Atropos API at {self._url} was restarted: {reason}; start this environment "
            "again, and it continues the checkpoint of the trainer's step"
        )
        return self.lost


def _bystander(name: str) -> dict[str, Any]:
    """Return the registration of an environment that takes no share of anything."""
    weight = 1e-30  # the API divides by the sum of all weights
    return {
        "desired_name": name,
        "max_token_length": 1,
        "weight": weight,
        "group_size": 1,
    }


def _unfilled(batch_size: int, group_size: int) -> str:
    """Say that groups fill no batch, and which sizes do."""
    divisors = [n for n in range(2, batch_size + 1) if batch_size % n == 0]
    fitting = sorted(sorted(divisors, key=lambda n: abs(n - group_size))[:2])
    below = batch_size // group_size * group_size
    return (
        f"groups of {group_size} can't fill the trainer's batch of {batch_size}, and smaller ones "
        "of other environments fill the rest by chance at most: set --env.group_size to "
        f"{' or '.join(map(str, fitting))}, or the trainer's batch size to {below} or "
        f"{below + group_size}"
    )


def _number_of_namesakes(reply: Mapping[str, Any]) -> int:
    """Return how many environments of that name the API knew before; -1 without a trainer."""
    return int(reply.get("wandb_name", "_-1").rpartition("_")[2])


class Delivery:
    """The way of a group to the API, or in `process` to Atropos's own file; each gets its outcome.

    Atropos's base class takes a refusal for success and lets a NaN reach the trainer's batch. The
    vocabulary is 0 if groups have no token ids.
    """

    def __init__(
        self,
        api: TrainerApi,
        statistics: Statistics,
        vocabulary: int,
        file: str | None,
    ) -> None:
        self.fatal: ConfigurationError | None = None  # ends a run of which nothing arrives
        self._api = api
        self._statistics = statistics
        self._vocabulary = vocabulary
        self._file = Path(file) if file else None
        self._disk = DaemonWriter(Path(file or ""))
        self._in_flight: set[asyncio.Task[None]] = set()
        self._refusals = Outage()
        self._bodies = asyncio.Semaphore(8)  # of 4 MB, in memory while the API is slow

    async def finish(self, delivery: Coroutine[Any, Any, GroupOutcome]) -> None:
        """Record the outcome of a delivery; cancelling the caller does not cancel it."""

        async def record() -> None:
            with self._statistics.delivering():
                self._statistics.record(await delivery)

        task = asyncio.create_task(record())
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)
        await asyncio.shield(task)  # the API may have the group before its worker is cancelled

    async def close(self) -> None:
        """Wait a few seconds for the groups in flight, then cancel them."""
        in_flight = list(self._in_flight)
        if in_flight:
            await asyncio.wait(in_flight, timeout=_CLOSE_SECONDS)
        for task in in_flight:
            task.cancel()
        for error in await asyncio.gather(*in_flight, return_exceptions=True):
            if isinstance(error, Exception):
                logger.error("A group is lost: %r", error)

    async def check(
        self,
        group: Mapping[str, Any],
        problem: Problem | None,
        *,
        rows: int,
        registered: int,
        row_limit: int,
        drop_equal_scores: bool,
    ) -> GroupOutcome | None:
        """Return the outcome of a group that is not sent, and log why; None for a good one.

        Args:
            registered: the rows that the API gathers before a trainer gets any; 0 without an API.
            row_limit: groups with a row of this many tokens or more are dropped; ≤ 0 for no limit.
        """
        lengths = [*map(len, group["tokens"])]
        check = functools.partial(
            group_error,
            group,
            rows=rows,
            vocabulary=self._vocabulary,
        )
        if self._vocabulary and (reason := await offload(check, tokens=sum(lengths))):
            return self._refuse(problem, reason)
        if registered and registered % rows:
            reason = f"{rows} rows don't divide the registered group_size {registered}"
            return self._refuse(problem, f"{reason}: the API would keep them and say nothing")
        if drop_equal_scores and len(set(group["scores"])) == 1:
            return GroupOutcome.FILTERED
        if 0 < row_limit <= max(lengths):
            message = "A row of %d tokens reaches max_token_len: not sent"
            logger.warning(message, max(lengths))
            return GroupOutcome.TOO_LONG
        return None

    def _refuse(self, problem: Problem | None, reason: str) -> GroupOutcome:
        self._refusals.record_failure()
        if self._refusals.should_log:
            refused = self._refusals.lost
            task = task_of(problem)
            logger.warning("Not sent: a group of %s, %d refused so far: %s", task, refused, reason)
        delivered = sum(self._statistics.counts[f"groups/{name}"] for name in ("sent", "written"))
        if self._refusals.lost >= 5 and not delivered:
            self.fatal = self.fatal or ConfigurationError(
                f"{self._refusals.lost} groups were refused and none was delivered: {reason}"
            )
        return GroupOutcome.REFUSED

    async def write(self, group: dict[str, Any], *, must_end: bool) -> bool:
        """Write to Atropos's own file, see `DaemonWriter`; return False on a failure."""
        file = self._file
        if not file:
            return True
        try:
            await self._disk.write(lambda: self._append(file, group), must_end=must_end)
        except OSError:  # logged and counted
            return False
        return True

    def _append(self, file: Path, group: dict[str, Any]) -> None:
        lists = {name: [list(row) for row in group[name]] for name in COLUMNS if group[name]}
        try:
            append_whole(file, (json.dumps({**group, **lists}) + "\n").encode())
        except OSError as error:
            self._count_missing(1, error)
            raise

    def _count_missing(self, groups: int, reason: object) -> None:
        self._statistics.counts["groups/not_written"] += groups
        logger.error("Groups missing in data_path_to_save_groups: %d (%s)", groups, reason)

    def close_file(self) -> None:
        """Wait for pending writes for a while, then log and count the rest as not written."""
        lost = self._disk.close()
        if lost:
            self._count_missing(lost, "its disk does not respond")

    async def send(self, group: Mapping[str, Any], problem: Problem | None) -> GroupOutcome:
        """Send a group to the API; failures are logged."""
        tokens = sum(map(len, group["tokens"]))
        try:
            async with self._bodies if tokens >= LARGE else contextlib.nullcontext():
                body = await offload(functools.partial(pack, group), tokens=tokens)
                reply = await self._api.request("POST", "/scored_data", body, groups=1)
        except (ApiRefusedError, TypeError, ValueError) as error:
            return self._refuse(problem, str(error))
        except UnreachableError as error:
            logger.error("A group is lost: %s", error)
            return GroupOutcome.FAILED
        except LostStateError:
            return GroupOutcome.FAILED
        own_size = (group["group_overrides"] or {}).get("group_size")
        if reply.get("status") == "buffered" and own_size is None:  # no other size is registered
            self._api.mark_lost("it has our id for another environment")
            return GroupOutcome.FAILED
        return GroupOutcome.SENT
