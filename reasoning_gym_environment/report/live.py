"""The page of runs that still write: their files are followed, and served over HTTP.

Each row is validated as it is read. Memory holds columns and places, so that 100,000 rollouts take
little; a text is read from its file when somebody asks for it. The page is read-only, and for those
who may read it: the loopback address needs no token, and a browser's page of another site can't
read from it, since the Host header has to name this machine.
"""

from __future__ import annotations

import asyncio
import gzip
import hmac
import json
import logging
import math
import os
import re
import secrets
import socket
import stat
import subprocess
import sys
import threading
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import urlencode, urlsplit

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import FixableError
from ..evaluation.store import PARTIAL_SAMPLES, SAMPLES
from ..service.server import HttpServer
from ..storage.dumps import distinct_files, holds_groups, is_record, read_record
from ..storage.rows import StoredGroup
from ..util.values import shorten
from .data import TRAINING, GroupIndex, RunHealth, group_id, run_of, seconds_of
from .page import row_of

logger = logging.getLogger(__name__)

MAX_LINE = 64 * 2**20
"""Bytes of a line; a longer one is skipped."""

MAX_ROLLOUTS = 2_000_000
"""Rollouts in memory; later ones are left out."""

MAX_RUNS = 2000
"""Runs and evaluations; groups of later ones are left out."""


class GoneError(Exception):
    """A group that is not in the index, or whose file was deleted or replaced."""


class FollowedFile:
    """A file that grows, and may be replaced or cut; read line by line from where it stopped.

    Attributes:
        size: bytes at the last look.
        read: bytes read so far.
        has_more: whether it has changed since it was read to its end.
        restarts: how often it had to be read again from its beginning.
        skipped: lines that were too long, not JSON, or not groups.
        problem: why the first of them was skipped.
        unreadable: why it can't be read now; empty if it can.
        run: the run of its last group, in whose health the skipped lines are reported.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = self.read = self.restarts = self.skipped = 0
        self.has_more = False
        self.problem = self.unreadable = self.run = ""
        self._seen: tuple[int, ...] = ()
        self._identity = (0, 0)
        self._end = b""
        self._skips_rest = False

    def look(self) -> None:
        """Find out whether it has changed."""
        try:
            info = self.path.stat()
        except OSError as error:
            self._fail(error)
            return
        seen = (info.st_ino, info.st_size, info.st_mtime_ns)
        if stat.S_ISREG(info.st_mode) and seen != self._seen:
            self._seen = seen
            self.has_more = True

    def next_lines(self) -> list[tuple[int, bytes]]:
        """Read whole lines, some megabytes of them; return each with its offset, without its end.

        A last line without its end is torn, or is being written: it waits.
        """
        try:
            with open_regular(self.path) as file:
                self._detect_replacement(file)
                file.seek(self.read)
                data = file.read(MAX_LINE // 16)
                if b"\n" not in data and len(data) == MAX_LINE // 16:
                    data += file.read(MAX_LINE - len(data))
        except OSError as error:
            self._fail(error)
            return []
        self.unreadable = ""
        return self._split(data)

    def _fail(self, error: OSError) -> None:
        """Wait for the next look; of a file that was deleted, what was read stays."""
        self.has_more = False
        self._seen = ()
        deleted = isinstance(error, FileNotFoundError)
        self.unreadable = "" if deleted else error.strerror or str(error)

    def skip(self, why: str) -> None:
        """Count a line that holds no group."""
        self.skipped += 1
        if self.skipped == 1:
            self.problem = why
            logger.warning("%s: skipped a line: %s", self.path, why)

    def _split(self, data: bytes) -> list[tuple[int, bytes]]:
        whole = data.rfind(b"\n") + 1
        if not whole:
            self.has_more = len(data) == MAX_LINE
            if self.has_more:
                self._skips_rest = True
                self._advance(data)
            return []
        start = self.read
        lines = []
        self._advance(data[:whole])
        self.has_more = self.read < self.size
        for line in data[: whole - 1].split(b"\n"):
            if self._skips_rest:
                self._skips_rest = False
                self.skip(f"it has more than {MAX_LINE} bytes")
            elif line:
                lines.append((start, line))
            start += len(line) + 1
        return lines

    def _advance(self, data: bytes) -> None:
        self.read += len(data)
        self._end = (self._end + data)[-64:]  # by which a file that was replaced is told

    def _detect_replacement(self, file: BinaryIO) -> None:
        """Start again where another file has the name, or the file another content."""
        info = os.fstat(file.fileno())
        self.size = info.st_size
        identity = (info.st_dev, info.st_ino)
        end = os.pread(file.fileno(), len(self._end), self.read - len(self._end))
        if identity != self._identity or end != self._end:
            self.restarts += self._identity != (0, 0)
            self._identity = identity
            self._end = b""
            self._skips_rest = False
            self.read = self.skipped = 0


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file; raises OSError for any other, such as a pipe, without waiting for it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "not a regular file")
    return os.fdopen(descriptor, "rb")


def parse_group(line: bytes, path: Path) -> StoredGroup:
    """Validate a line; raises ValueError with what is wrong with it."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is torn, or not JSON: {shorten(line[:50])}") from error
    return StoredGroup.from_json(row, file=path)


class _Place(NamedTuple):
    """Where a row is: the number of the file, and the line without its end."""

    file: int
    offset: int
    length: int


class LiveIndex:
    """The index of the groups below some paths, which grows as they do.

    Its methods may be called from different threads.

    Args:
        paths: dumps, evaluation samples, and folders in which files may appear.
        only_new: leaves out files until they change.

    Raises:
        FixableError: a path doesn't exist, or is given with its rescored form.
    """

    look_seconds = 1.0
    """Seconds between two looks for what is new."""

    ended = ""
    """What a page says when its server ends; then the page asks no more."""

    def __init__(self, paths: Sequence[Path], *, only_new: bool = False) -> None:
        for path in paths:
            if not path.exists():
                raise FixableError(f"{path} does not exist; name a folder or file that does")
        self._paths = [path.resolve() for path in distinct_files(paths)]
        self._old: dict[Path, int] = {}
        self._old = {path: modified for modified, path in self._found()} if only_new else {}
        self._lock = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        """Forget everything."""
        self._generation = secrets.token_hex(4)
        self._looked = 0.0
        self._files: dict[Path, FollowedFile] = {}
        self._records: dict[Path, int] = {}
        self._index = GroupIndex()
        self._health: defaultdict[str, RunHealth] = defaultdict(RunHealth)
        self._numbers: dict[str, int] = {}
        self._places = array("Q")  # three numbers a group: `_Place`
        self._read_from: list[Path] = []
        self._read_as: dict[tuple[Path, int], int] = {}
        self._rollouts = self._left_out = 0

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self._places) // 3

    def _place(self, number: int) -> _Place:
        return _Place(*self._places[3 * number : 3 * number + 3])

    def update(self, seconds: float = 0.5) -> bool:
        """Read what is new until about `seconds` have passed; return whether more is left."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with self._lock:
                self._look()
                file = next((file for file in self._files.values() if file.has_more), None)
                if file is None:
                    return False
                self._read(file)
        return True

    def _look(self) -> None:
        """Find new files, and which ones have changed."""
        if time.monotonic() < self._looked + self.look_seconds:
            return
        for modified, path in sorted(self._found()):
            if is_record(path.name):
                self._read_record(path, modified)
            elif path not in self._files:
                self._files[path] = FollowedFile(path)
        for file in self._files.values():
            file.look()
        self._looked = time.monotonic()

    def _found(self) -> Iterator[tuple[int, Path]]:
        """Yield the files with rows and the records of runs, and when they were modified."""
        for given in self._paths:
            paths = [given]
            if given.is_dir():
                walked = os.walk(given)
                names = ((at, name) for at, _, own in walked for name in own)
                paths = [
                    Path(at, name)
                    for at, name in names
                    if holds_groups(name) or name == PARTIAL_SAMPLES or is_record(name)
                ]
            for path in paths:
                with suppress(OSError):
                    info = path.stat()
                    if stat.S_ISREG(info.st_mode) and info.st_mtime_ns != self._old.get(path):
                        yield info.st_mtime_ns, path

    def _read_record(self, path: Path, modified: int) -> None:
        """Read a run's record, if it has changed; a run that has just begun has no groups yet."""
        if self._records.get(path) == modified or (record := read_record(path)) is None:
            return
        self._records[path] = modified
        is_new = time.time() - (seconds_of(record.updated) or 0.0) < 60.0
        begins = is_new and not record.ended and len(self._index.runs) < MAX_RUNS
        if record.run in self._index.runs or begins:
            self._index.set_record(record, path.parent)

    def _read(self, file: FollowedFile) -> None:
        restarts = file.restarts
        lines = file.next_lines()
        if file.restarts > restarts and file.path.name in (SAMPLES, PARTIAL_SAMPLES):
            self._reset()  # a resumed evaluation asks its unscored items again
            return
        number = self._read_as.setdefault((file.path, file.restarts), len(self._read_from))
        self._read_from += [file.path] if number == len(self._read_from) else []
        for offset, line in lines:
            try:
                group = parse_group(line, file.path)
            except ValueError as error:
                file.skip(str(error))
            else:
                self._add(group, _Place(number, offset, len(line)))
                file.run, _ = run_of(group)

    def _add(self, group: StoredGroup, place: _Place) -> None:
        """Add a group, or note that it moved to another file, as finished evaluations do."""
        identifier = group_id(group)
        known = self._numbers.get(identifier)
        run, _ = run_of(group)
        if known is not None and self._place(known).file != place.file:
            self._places[3 * known : 3 * known + 3] = array("Q", place)
        elif self._rollouts + len(group.rollouts) <= MAX_ROLLOUTS and (
            run in self._index.runs or len(self._index.runs) < MAX_RUNS
        ):
            self._rollouts += len(group.rollouts)
            unique = self._index.add(group, identifier=identifier)
            self._numbers[unique] = len(self)
            self._places.extend(place)
            self._health[run].add(group)
        else:
            self._left_out += 1

    def batch(self, cursor: str = "") -> dict[str, Any]:
        """Return what came since a cursor; everything where it is empty or of another index."""
        with self._lock:
            generation, _, since = cursor.partition("-")
            known = generation == self._generation and since.isdecimal() and len(since) < 9
            first = int(since) if known else 0
            if first > len(self):
                known = False
                first = 0
            batch = self._index.batch(first)
            batch["groups"].pop("at")
            now = time.time()
            skipped = Counter[str]()
            files = self._files.values()
            for file in files:
                skipped[file.run] += file.skipped
            for entry, run in zip(batch["runs"], self._index.runs.values(), strict=True):
                health = self._health[run.key]
                entry["health"] = health.lines(
                    run.record,
                    trains=run.kind == TRAINING,
                    unreadable=skipped[run.key],
                    ended=entry["ended"],
                    now=now,
                )
                entry["flags"] = health.changes.flags() if run.kind == TRAINING else []
                if entry["health"][0]["level"] != "past":
                    entry["header"] += health.pace(now)
            left = sum(max(0, file.size - file.read) for file in files if file.has_more)
            return {
                **batch,
                "cursor": f"{self._generation}-{len(self)}",
                "restart": not known,
                "reading": 1 - left / max(1, sum(file.size for file in files)),
                "notes": self._notes(),
                "ended": self.ended,
            }

    def _notes(self) -> list[str]:
        """Return what is not shown, and why."""
        files = self._files.values()
        notes = [
            f"{file.path}: no groups; a line was skipped: {file.problem}"
            for file in files
            if file.problem and not file.run
        ]
        notes += [
            f"{file.path} can't be read ({file.unreadable}): new groups in it are not shown"
            for file in files
            if file.unreadable
        ]
        if self._left_out:
            limits = f"{MAX_ROLLOUTS:,} rollouts or {MAX_RUNS:,} runs"
            notes.append(f"{self._left_out:,} groups beyond {limits} are left out")
        return notes

    def group(self, identifier: str) -> StoredGroup:
        """Read a group from its file; raises GoneError where it can't be."""
        with self._lock:
            number = self._numbers.get(identifier)
            if number is None:
                raise GoneError(f"no such group: {shorten(identifier)}")
            place = self._place(number)
            path = self._read_from[place.file]
        try:
            with open_regular(path) as file:
                group = parse_group(os.pread(file.fileno(), place.length, place.offset), path)
        except (OSError, ValueError) as error:
            raise GoneError(f"{path} was deleted or replaced") from error
        if not identifier.startswith(group_id(group)):
            raise GoneError(f"{path} was replaced")
        return group

    def search(self, text: str, *, after: int = 0, seconds: float = 0.5) -> dict[str, Any]:
        """Search questions and completions for a text until about `seconds` have passed.

        Args:
            text: found in upper and lower case.
            after: groups that an earlier call has searched.

        Returns:
            `found`: the ids of groups whose question has the text, and ID.N for rollouts, from 1;
            `searched`: so many groups, `of` so many.
        """
        deadline = time.monotonic() + seconds
        found: list[str] = []
        while after < len(self) and time.monotonic() < deadline:
            with self._lock:
                numbers = range(after, min(after + 64, len(self)))
                rows = [(self._index.identifier(n), self._place(n)) for n in numbers]
                paths = {place.file: self._read_from[place.file] for _, place in rows}
            for file, own in groupby(rows, lambda row: row[1].file):
                found += _matches(paths[file], own, text.lower())
            after += len(rows)
        return {"found": found, "searched": after, "of": len(self)}


def _matches(path: Path, rows: Iterable[tuple[str, _Place]], text: str) -> Iterator[str]:
    """Yield where a text in lower case is in some rows of a file; see `LiveIndex.search`."""
    escaped = json.dumps(text)[1:-1].encode()  # dumps are ASCII: most rows need no parsing
    with suppress(OSError), open_regular(path) as file:
        for identifier, place in rows:
            line = os.pread(file.fileno(), place.length, place.offset)
            if text.isascii() and escaped not in line.lower():
                continue
            with suppress(ValueError):  # the file was replaced
                group = parse_group(line, path)
                if any(text in m["content"].lower() for m in group.prompt if m["role"] != "system"):
                    yield identifier
                    continue
                for number, rollout in enumerate(group.rollouts, start=1):
                    if text in rollout.text.lower():
                        yield f"{identifier}.{number}"


class LiveServer:
    """The page, HTML that reads from `api/`, on its `url` while entered; it follows the files.

    Args:
        token: that readers must have; None requires none.
        allowed_hosts: names of this machine, besides its own and its addresses, that may stand in
            the address of the page: that of a proxy, for instance.
    """

    def __init__(
        self,
        live: LiveIndex,
        page: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        allowed_hosts: Collection[str] = (),
    ) -> None:
        self._live = live
        self._page = page
        self._host = host
        self._token = token
        self._asked = -math.inf  # when a page has asked for what is new
        self._slots = asyncio.Semaphore(4)  # a reply may take as much memory as the whole index
        routes = [
            Route("/", self._show_page),
            Route("/api/index", self._index),
            Route("/api/group/{id}", self._group),
            Route("/api/search", self._search),
            Route("/healthz", self._healthz),
        ]
        names = {"localhost", socket.gethostname(), host, *allowed_hosts}
        app = LocalOnlyMiddleware(
            Starlette(routes=routes), token=token, names={name.lower() for name in names}
        )
        self._server = HttpServer(
            app,
            host=host,
            port=port,
            drain=2,
            lifespan=False,
        )

    async def __aenter__(self) -> LiveServer:
        await self._server.__aenter__()
        parts = urlsplit(self._server.url)
        is_any = _is_address(self._host) and ip_address(self._host).is_unspecified
        name = socket.gethostname() if is_any else parts.netloc.rpartition(":")[0]
        query = f"?{urlencode({'token': self._token})}" if self._token else ""
        self.url = f"http://{name}:{parts.port}/{query}"

        async def follow() -> None:
            """Keep the index up to date; what can't be read is in its notes."""
            while True:
                more = await asyncio.to_thread(self._live.update)
                await asyncio.sleep(0.0 if more else self._live.look_seconds)

        self._following = asyncio.create_task(follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._following.cancel()
        try:
            with suppress(asyncio.CancelledError):
                await self._following
        finally:
            await self._server.__aexit__()

    async def serve_until(self, ended: asyncio.Event) -> None:
        """Wait for the event; raise what ended the following of the files, which only a bug can."""
        waiting = asyncio.create_task(ended.wait())
        await asyncio.wait([waiting, self._following], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._following.done():
            self._following.result()

    async def say_ended(self, report: str) -> None:
        """Tell open pages that the run and this server end, and where a report is, if one is."""
        if time.monotonic() - self._asked < 5.0:  # they ask every two seconds
            await asyncio.sleep(2 * self._live.look_seconds)  # what came last is read
            where = report or "what `reasoning-gym-environment report` makes of the dumps"
            self._live.ended = f"The run has ended. Its texts are in {where}."
            await asyncio.sleep(2.2)

    async def _show_page(self, request: Request) -> Response:
        return HTMLResponse(self._page)

    async def _healthz(self, request: Request) -> Response:
        return PlainTextResponse("ok")

    async def _index(self, request: Request) -> Response:
        cursor = request.query_params.get("since", "")
        self._asked = time.monotonic()
        return await self._reply(request, partial(self._live.batch, cursor))

    async def _group(self, request: Request) -> Response:
        identifier = request.path_params["id"]
        longest = 1_000_000  # of a longer text, the middle is left out
        return await self._reply(request, lambda: row_of(self._live.group(identifier), longest))

    async def _search(self, request: Request) -> Response:
        text = request.query_params.get("text", "")
        after = request.query_params.get("after", "0")
        if not 0 < len(text) <= 1000:
            return _error(422, f"text must have 1 to 1000 characters, got {len(text)}")
        if not (after.isascii() and after.isdigit() and len(after) < 10):
            return _error(422, f"after must be an integer ≥ 0, got {shorten(after)}")
        return await self._reply(request, partial(self._live.search, text, after=int(after)))

    async def _reply(self, request: Request, make: Callable[[], Any]) -> Response:
        """Read files and make the reply in a thread; compress it if it is long."""

        def encode() -> bytes:
            text = json.dumps(make(), allow_nan=False, separators=(",", ":")).encode("ascii")
            return gzip.compress(text, 4) if packed and len(text) > 1024 else text

        packed = "gzip" in request.headers.get("accept-encoding", "")
        async with self._slots:
            try:
                body = await asyncio.to_thread(encode)
            except GoneError as error:
                return _error(404, str(error))
        headers = {"Vary": "Accept-Encoding"}
        if body.startswith(b"\x1f\x8b"):
            headers["Content-Encoding"] = "gzip"
        return Response(body, headers=headers, media_type="application/json")


class LocalOnlyMiddleware:
    """Middleware that lets only this machine's own pages read, with the token if there is one.

    Args:
        names: lower-case host names under which the page may be opened; addresses always may.
    """

    def __init__(self, app: ASGIApp, *, token: str | None, names: Collection[str]) -> None:
        self._app = app
        self._token = token
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {
            "Cache-Control": "no-store",
            "Content-Security-Policy": "frame-ancestors 'none'",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
        }

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(headers)
            await send(message)

        app = self._refusal(Request(scope)) or self._app
        await app(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """Return why the request is not served; the cookie and the way for a right token."""
        host = request.headers.get("host", "")
        path = request.scope["path"]
        # Nothing is read from `request.url`, which starlette before 1.0.1 builds from this header.
        parts = re.fullmatch(r"(\[[\da-f:.]+\]|[\w.-]+)(?::(\d{1,5}))?", host.lower(), re.ASCII)
        name = parts[1].strip("[]") if parts else ""
        if not parts or not (name in self._names or _is_address(name)):  # it may be rebound
            hint = "open the page by its address, or allow the name with --allow-host"
            return _error(403, f"the host {shorten(host)} is not this machine's: {hint}")
        if request.method not in ("GET", "HEAD"):
            return _error(405, f"only GET is served, got {shorten(request.method)}")
        if path != "/" and request.headers.get("sec-fetch-site", "") in ("cross-site", "same-site"):
            return _error(403, "another site's page may not read this")
        token = self._token
        if token is None or path == "/healthz":
            return None
        cookie = f"watch_{parts[2] or 80}"
        given = request.query_params.get("token")
        if given is not None and _is_equal(given, token) and path == "/":
            reply = RedirectResponse("./", 303)  # the token leaves the address bar
            reply.set_cookie(cookie, token, httponly=True, samesite="lax")
            return reply
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if any(_is_equal(one, token) for one in (bearer, request.cookies.get(cookie, ""))):
            return None
        return _error(401, "open the address that `watch` has printed, with its token")


def _is_equal(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def _error(status: int, message: str) -> Response:
    text = json.dumps({"error": message})
    return Response(text, status, media_type="application/json")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


class WatchProcess:
    """A process that serves the page of a run; it ends with this process, however that ends.

    It has an interpreter of its own, so that the page takes no time from the run. What the folders
    hold already is left out.
    """

    def __init__(self, folders: Sequence[Path], port: int) -> None:
        try:
            socket.create_server(("127.0.0.1", port)).close()  # frees it again
        except OSError as error:
            raise FixableError(
                f"--watch {port}: cannot listen at this port ({os.strerror(error.errno or 0)}); "
                "give another one, or 0 for a free one"
            ) from error
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        program = [sys.executable, "-m", __package__.partition(".")[0], "watch"]
        options = ["--port", str(port), "--new", "--until-input-ends"]
        self._process = subprocess.Popen(
            [*program, *map(str, folders), *options],
            stdin=subprocess.PIPE,  # ends with this process
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C ends the run first
        )

    def url(self) -> str:
        """Wait until it serves, and return its address; FixableError if it can't start."""
        assert self._process.stdout is not None
        url = self._process.stdout.readline().strip()
        if not url:
            raise FixableError("--watch: the page can't be served, for the reason above")
        return url

    def close(self, report: Path | None = None) -> None:
        """End the process; its pages name the report. Idempotent."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended already
            if report and not self._process.stdin.closed:
                self._process.stdin.write(str(report))
            self._process.stdin.close()
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
        with self._process:  # closes its output
            pass
