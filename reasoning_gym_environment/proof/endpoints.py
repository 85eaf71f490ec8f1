"""Scoring endpoints of others: what each protocol sends, and which reward its reply has.

An endpoint is not trusted: its replies have limits of size and time, redirects are not followed,
and what is not a finite number is no reward.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from ..errors import ConfigurationError, FixableError
from ..records import Status, Verdict
from ..util.outages import UnreachableError, is_loopback
from ..util.retries import Retry, RetryPolicy
from ..util.values import shorten
from .ladder_proof import KILLED
from .row_reading import RowContent, read_row

REPLY_SECONDS = 30.0
"""For a request and its whole reply. A verifier in a trainer's way answers in a few seconds."""

MAX_REPLY_BYTES = 2**22
"""NeMo Gym repeats the row and the completion in its reply, and neither is larger than this."""

BUSY = RetryPolicy(seconds=30.0)
"""How long a reply of 429 or 503, or one that says that nothing was scored, is asked for again."""

ALIVE = RetryPolicy(attempts=2, first_pause=2.0)
"""How often an endpoint that has just failed is asked for a reward that it has given."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EndpointRow:
    """A row as an endpoint is asked about it.

    Attributes:
        number: its place in the file, from 1.
        value: the row itself, which NeMo Gym gets whole.
        task: what it says of its task; empty if nothing.
        question: empty if it has none.
        label: its right answer; None if it has none.
    """

    number: int
    value: Mapping[str, Any]
    content: RowContent
    task: str
    question: str
    label: str | None


def endpoint_row(number: int, value: Any) -> EndpointRow:
    """Read a row of any framework; raise ValueError if it is not an object."""
    row = json.loads(value) if isinstance(value, str) else value
    if not isinstance(row, dict):
        raise ValueError(f"it must be a JSON object, got {shorten(row)}")
    try:
        json.dumps(row)
    except TypeError as error:  # of Parquet, a date for one
        raise ValueError(f"it can't be sent as JSON: {error}") from None
    content = read_row(row)
    tasks = list(content.tasks)
    if content.entry is not None:
        tasks.insert(0, str(content.entry["metadata"].get("source_dataset", "")))
    if content.recipe is not None:
        tasks.insert(0, content.recipe.task)
    return EndpointRow(
        number=number,
        value=row,
        content=content,
        task=tasks[0] if tasks else "",
        question=content.questions[0] if content.questions else "",
        label=content.answers[0] if content.answers else None,
    )


class AnswerFailure(Exception):
    """An answer that got no reward.

    Attributes:
        status: what became of it.
    """

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class UnusableRowError(ValueError):
    """A row that an endpoint can't be asked about."""


class EndpointLostError(UnreachableError):
    """An endpoint that gave rewards, and gives none any more."""


class Connection:
    """The HTTP client of one endpoint: `async with`.

    Attributes:
        url: without a user and a password, which are sent to this address alone.
        reply_seconds: for a request and its whole reply.
    """

    def __init__(self, url: str, reply_seconds: float = REPLY_SECONDS) -> None:
        self.reply_seconds = reply_seconds
        self._address = url
        self.url = without_user(url)
        self._session: aiohttp.ClientSession | None = None
        self._action_field = ""

    async def __aenter__(self) -> Connection:
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self.reply_seconds),
            headers={"Accept-Encoding": "identity"},
            auto_decompress=False,
            # A server closes some connections after an error, as another request begins.
            connector=aiohttp.TCPConnector(force_close=True),
            # What a cookie keeps would come from answers before.
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("enter the connection first")
        return self._session

    async def post(self, body: Mapping[str, Any]) -> Any:
        """Return the JSON of the reply to a request, asked again while the endpoint is busy."""
        retry = Retry(BUSY)
        while True:
            status, text = await self._request("POST", self._address, body)
            if status not in (429, 503):
                return parsed(text)
            if not await retry.wait():
                raise UnreachableError(f"{self.url} is busy: {_status(status, text)}")

    async def action_field(self) -> str:
        """Return in which field of an action OpenEnv's environment takes the answer."""
        if not self._action_field:
            _, text = await self._request("GET", self._beside("schema"), None)
            self._action_field = text_field(parsed(text))
        return self._action_field

    async def open_episode(self) -> aiohttp.ClientWebSocketResponse[bool]:
        """Open a session of OpenEnv's environment."""
        parts = urlsplit(self._beside("ws"))
        scheme = "wss" if parts.scheme == "https" else "ws"
        return await self._client.ws_connect(
            urlunsplit((scheme, *parts[1:])),
            max_msg_size=MAX_REPLY_BYTES,
        )

    def _beside(self, name: str) -> str:
        parts = urlsplit(self._address)
        path = parts.path.removesuffix("/step")
        return urlunsplit((parts.scheme, parts.netloc, f"{path}/{name}", "", ""))

    async def _request(
        self, method: str, address: str, body: Mapping[str, Any] | None
    ) -> tuple[int, bytes]:
        """Return status and text of a reply; raise for all but 200, 429 and 503."""
        url = without_user(address)
        # All but ASCII is escaped, so that a lone surrogate can be sent.
        data = None if body is None else json.dumps(body).encode()
        text = bytearray()
        async with self._client.request(
            method,
            address,
            data=data,
            headers={"Content-Type": "application/json"},
            allow_redirects=False,
        ) as reply:
            async for chunk in reply.content.iter_any():
                text += chunk
                if len(text) > MAX_REPLY_BYTES:
                    raise AnswerFailure(
                        Status.CRASHED,
                        f"a reply of more than {MAX_REPLY_BYTES} bytes",
                    )
        status = reply.status
        if 300 <= status < 400:
            place = shorten(reply.headers.get("Location", ""))
            raise FixableError(
                f"{url} replied {status}, a redirect to {place}, which is not followed: "
                "name the address that scores"
            )
        if status in (401, 403, 404, 405):
            raise FixableError(f"{url} replied {_status(status, text)}")
        if 400 <= status < 500 and status != 429:
            raise AnswerFailure(Status.REJECTED, _status(status, text))
        if status >= 500 and status != 503:
            raise AnswerFailure(Status.CRASHED, _status(status, text))
        return status, bytes(text)


def _status(status: int, text: bytes | bytearray) -> str:
    return f"{status}: {shorten(bytes(text[:200]).decode(errors='replace'))}"


def parsed(text: bytes) -> Any:
    """Return the JSON of a reply."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        shown = shorten(text[:200].decode(errors="replace"))
        raise AnswerFailure(
            Status.CRASHED, f"a reply that is not JSON: {shown}"
        ) from None


def reward_of(reply: Any, name: str) -> float:
    """Return the reward that a reply has below a name; AnswerFailure if that is not a number."""
    value = reply.get(name) if isinstance(reply, dict) else None
    if isinstance(value, int | float):
        try:
            reward = float(value)
        except OverflowError:
            reward = math.inf
        if math.isfinite(reward):
            return reward
        shown = (
            f"the {name} {value if isinstance(value, float) else 'of too many digits'}"
        )
    else:
        shown = f"{shorten(reply)}, without a number as its {name}"
    raise AnswerFailure(Status.CRASHED, f"it replied {shown}")


def text_field(schema: Any) -> str:
    """Return the field of an action that takes a text: the only one that must be there.

    Example:
        >>> action = {"properties": {"answer": {"type": "string"}}, "required": ["answer"]}
        >>> text_field({"action": action})
        'answer'
    """
    action = schema.get("action") if isinstance(schema, dict) else None
    if not isinstance(action, dict):
        action = {}
    properties = action.get("properties")
    required = action.get("required")
    fields = []
    for name in required if isinstance(required, list) else ():
        field = properties.get(name) if isinstance(properties, dict) else None
        if isinstance(field, dict) and field.get("type") == "string":
            fields.append(name)
    if len(fields) != 1:
        raise FixableError(
            "/schema must name one text that an action needs, which is the answer, got "
            f"{', '.join(map(shorten, fields)) or 'none'}"
        )
    return str(fields[0])


async def reward_of_service(
    connection: Connection, row: EndpointRow, completion: str
) -> float:
    """Ask a reward service of this package."""
    content = row.content
    if content.recipe is not None:
        problem = {"recipe": content.recipe.to_json()}
    elif content.entry is not None:
        problem = {"entry": dict(content.entry)}
    else:
        raise UnusableRowError("it has neither a recipe nor an entry of reasoning-gym")
    retry = Retry(BUSY)
    while True:
        reply = await connection.post({**problem, "completions": [completion]})
        scores = reply.get("scores") if isinstance(reply, dict) else None
        score: Any = scores[0] if isinstance(scores, list) and scores else None
        if not isinstance(score, dict):
            raise AnswerFailure(Status.CRASHED, f"it replied {shorten(reply)}")
        if score.get("status") != Status.UNSCORED.value:
            return reward_of(score, "score")
        if not await retry.wait():
            raise _unscored(connection, score.get("detail"))


async def reward_of_nemo_gym(
    connection: Connection, row: EndpointRow, completion: str
) -> float:
    """Ask a resource server of NeMo Gym, or what speaks like one."""
    message = {
        "type": "message",
        "id": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": completion, "annotations": []}],
    }
    response = {
        "object": "response",
        "id": "response",
        "created_at": 0,
        "model": "none",
        "output": [message],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
    }
    parameters = row.value.get("responses_create_params")
    if not isinstance(parameters, dict):
        messages = [{"role": "user", "content": row.question}]
        parameters = {"input": messages}
    body = {**row.value, "responses_create_params": parameters, "response": response}
    retry = Retry(BUSY)
    while True:
        reply = await connection.post(body)
        masked = isinstance(reply, dict) and reply.get("mask_sample") is True
        if not masked:
            return reward_of(reply, "reward")
        if not await retry.wait():
            raise _unscored(connection, reply.get("failure_reason"))


def _unscored(connection: Connection, detail: object) -> UnreachableError:
    return UnreachableError(f"{connection.url} can't score now: {shorten(detail)}")


async def reward_of_openenv(
    connection: Connection, row: EndpointRow, completion: str
) -> float:
    """Ask an environment of OpenEnv in a session of its own: reset, and one step."""
    action = {await connection.action_field(): completion}
    # aiohttp's own limit of a message begins again with each frame.
    return await asyncio.wait_for(
        _play(connection, row, action), connection.reply_seconds
    )


async def _play(
    connection: Connection, row: EndpointRow, action: Mapping[str, str]
) -> float:
    async with await connection.open_episode() as episode:
        first = await _exchange(episode, "reset", reset_arguments(row))
        asked = json.dumps(first.get("observation"), ensure_ascii=False)
        # As it stands in the JSON.
        question = json.dumps(row.question.strip(), ensure_ascii=False)[1:-1]
        if question not in asked:
            raise UnusableRowError("reset asks another question than the row")
        return reward_of(await _exchange(episode, "step", action), "reward")


async def _exchange(
    episode: aiohttp.ClientWebSocketResponse[bool], kind: str, data: Mapping[str, Any]
) -> dict[str, Any]:
    """Send a message and return the data of the reply."""
    await episode.send_str(json.dumps({"type": kind, "data": data}))
    message = await episode.receive()
    if message.type is not aiohttp.WSMsgType.TEXT:
        raise AnswerFailure(Status.CRASHED, f"{kind} ended the session")
    reply = parsed(message.data.encode(errors="replace"))
    reply_data = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(reply_data, dict) or reply.get("type") != "observation":
        raise AnswerFailure(Status.CRASHED, f"{kind} got {shorten(reply_data)}")
    return reply_data


def reset_arguments(row: EndpointRow) -> dict[str, Any]:
    """Return the arguments of reset: the row's own, or those that make its recipe's problem."""
    own = row.value.get("reset")
    if isinstance(own, dict):
        return own
    recipe = row.content.recipe
    if recipe is None:
        raise UnusableRowError("it has neither `reset`, its arguments, nor a recipe")
    return {
        "dataset_name": recipe.task,
        "dataset_config": dict(recipe.parameters),
        "seed": recipe.seed,
        "size": 1,
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class Protocol:
    """How an endpoint is asked for the reward of a completion."""

    name: str
    reward: Callable[[Connection, EndpointRow, str], Awaitable[float]]


PROTOCOLS = {
    "/score": Protocol(name="reward service", reward=reward_of_service),
    "/verify": Protocol(name="NeMo Gym", reward=reward_of_nemo_gym),
    "/step": Protocol(name="OpenEnv", reward=reward_of_openenv),
}
"""By the end of the URL's path."""


def protocol_of(url: str, *, anywhere: bool) -> Protocol:
    """Return the protocol of a URL; ConfigurationError if there is none.

    Args:
        anywhere: whether the user agrees to a host that is not this machine.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(
            f"--url must begin with http:// or https:// and a host, got {shorten(url)}"
        )
    if not (anywhere or is_loopback(parts.hostname)):
        raise ConfigurationError(
            f"--url sends many answers, hostile ones among them, to {parts.hostname}, which is not "
            "this machine: add --yes if its owner agrees"
        )
    for end, protocol in PROTOCOLS.items():
        if parts.path.endswith(end):
            return protocol
    raise ConfigurationError(
        f"--url must end in {', '.join(PROTOCOLS)}, by which the protocol is known, got "
        f"{shorten(parts.path)}"
    )


def without_user(url: str) -> str:
    """Return a URL without its user and password.

    Example:
        >>> without_user("http://token:secret@127.0.0.1:8080/score")
        'http://127.0.0.1:8080/score'
    """
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, *parts[2:]))


async def ask(
    connection: Connection, protocol: Protocol, row: EndpointRow, completion: str
) -> float:
    """Return the reward of a completion.

    Raises:
        AnswerFailure: there is none, which may be the answer's doing.
        UnusableRowError: the row lacks what the protocol needs.
        FixableError: the endpoint is not one of this protocol, or refuses everybody.
    """
    try:
        return await protocol.reward(connection, row, completion)
    except asyncio.TimeoutError:
        raise AnswerFailure(
            Status.TIMEOUT, f"no reply within {connection.reply_seconds:g} s"
        ) from None
    except aiohttp.WSServerHandshakeError as error:
        raise FixableError(
            f"{connection.url} has no session at /ws beside it: {error.status}"
        ) from None
    except (OSError, aiohttp.ClientError) as error:
        raise AnswerFailure(
            Status.CRASHED, f"no connection: {shorten(str(error))}"
        ) from None


class Asker:
    """Asks an endpoint, and tells the failure of an answer from that of the endpoint.

    Attributes:
        control: a completion that had a reward, with it; None until there is one.
    """

    def __init__(self, connection: Connection, protocol: Protocol) -> None:
        self.control: tuple[EndpointRow, str, float] | None = None
        self._connection = connection
        self._protocol = protocol

    async def attempt(self, row: EndpointRow, completion: str) -> Verdict:
        """Return the verdict on a completion; one without a reward has a detail.

        Raises UnusableRowError, and FixableError.
        """
        began = time.monotonic()
        status = Status.WRONG
        detail = ""
        reward = 0.0
        try:
            reward = await ask(self._connection, self._protocol, row, completion)
        except AnswerFailure as failure:
            status = failure.status
            detail = str(failure)
        else:
            self.control = self.control or (row, completion, reward)
            if reward >= 1:
                status = Status.SOLVED
        seconds = time.monotonic() - began
        return Verdict(score=reward, status=status, detail=detail, seconds=seconds)

    async def verdict(self, row: EndpointRow, completion: str) -> Verdict:
        """Return the verdict on a completion; a failure counts if the endpoint is well after it.

        What failed is asked again, but for what has taken all of its time.

        Raises EndpointLostError if that gives no reward any more, and what `attempt` raises.
        """
        verdict = await self.attempt(row, completion)
        if verdict.status not in KILLED:
            return verdict
        await self.require_alive(
            f"{shorten(completion)} to row {row.number}: {verdict.detail}"
        )
        if verdict.status is Status.TIMEOUT:
            return verdict
        return await self.attempt(row, completion)

    async def require_alive(self, since: str) -> float:
        """Return the reward of the control; EndpointLostError if it has none any more."""
        if self.control is None:
            raise EndpointLostError(f"{self._connection.url} gives no reward: {since}")
        row, completion, _ = self.control
        retry = Retry(ALIVE)
        while True:
            verdict = await self.attempt(row, completion)
            if not verdict.detail:
                return verdict.score or 0.0
            if not await retry.wait():
                raise EndpointLostError(
                    f"{self._connection.url} gives no reward any more ({verdict.detail}), since "
                    f"{since}"
                )
