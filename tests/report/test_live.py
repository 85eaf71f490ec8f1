"""The page over HTTP: what it serves, and to whom."""

import asyncio
import gzip
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import aiohttp
import pytest
from invented_run import write_invented_evaluations
from report_files import row

from reasoning_gym_environment.errors import FixableError
from reasoning_gym_environment.evaluation.comparison import compare_samples
from reasoning_gym_environment.report.data import read_report_data
from reasoning_gym_environment.report.live import LiveIndex
from reasoning_gym_environment.report.live_server import LiveServer
from reasoning_gym_environment.report.page import embed
from reasoning_gym_environment.storage.dumps import read_groups

DUMP = "reasoning_gym_environment_rollouts_r_0000.jsonl"
TOKEN = "a-token-of-24-characters"
PAGE = "<!doctype html><title>A page</title>"


@pytest.fixture(autouse=True)
def _polls_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LiveIndex, "look_seconds", 0.02)


class Reply(NamedTuple):
    status: int
    headers: Any
    body: bytes

    @property
    def json(self) -> Any:
        packed = self.headers.get("Content-Encoding") == "gzip"
        return json.loads(gzip.decompress(self.body) if packed else self.body)


class Client:
    """Sends requests as they are written, without following redirects or keeping cookies."""

    def __init__(self, url: str) -> None:
        self.url = url.partition("?")[0]
        jar = aiohttp.DummyCookieJar()
        self._session = aiohttp.ClientSession(auto_decompress=False, cookie_jar=jar)

    async def get(self, path: str = "", method: str = "GET", **headers: str) -> Reply:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self._session.request(
            method, self.url + path, headers=named, allow_redirects=False
        ) as response:
            return Reply(response.status, response.headers, await response.read())

    async def post(self, path: str, body: str, **headers: str) -> Reply:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self._session.post(
            self.url + path, data=body, headers=named
        ) as response:
            return Reply(response.status, response.headers, await response.read())

    async def index(self, groups: int, cursor: str = "") -> Any:
        """Ask until the index has so many new groups."""
        while True:
            batch = (await self.get(f"api/index?since={cursor}")).json
            if len(batch["groups"]["id"]) >= groups:
                return batch
            await asyncio.sleep(0.02)

    async def close(self) -> None:
        await self._session.close()


@asynccontextmanager
async def serving(
    folder: Path, index: LiveIndex | None = None, **settings: Any
) -> AsyncIterator[Client]:
    index = LiveIndex([folder]) if index is None else index
    async with LiveServer(index, PAGE, **settings) as server:
        client = Client(server.url)
        try:
            yield client
        finally:
            await client.close()


def append(folder: Path, *rows: dict[str, Any]) -> None:
    with (folder / DUMP).open("a") as file:
        file.writelines(json.dumps(each) + "\n" for each in rows)


async def test_the_page_gets_what_is_new_and_texts_when_it_asks(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        reply = await client.get()
        assert (reply.status, reply.body.decode()) == (200, PAGE)
        first = await client.index(0)
        stored = row([1.0, 0.0], texts=["one \ud800", "two"])
        append(tmp_path, stored)
        batch = await client.index(1, first["cursor"])
        assert (batch["restart"], batch["rollouts"]["solved"]) == (False, [1, 0])
        [identifier] = batch["groups"]["id"]
        group = await client.get(f"api/group/{identifier}")
        assert group.json == stored
        found = (await client.get("api/search?text=TWO")).json
        assert found == {"found": [f"{identifier}.2"], "searched": 1, "of": 1}
        (tmp_path / DUMP).unlink()
        gone = await client.get(f"api/group/{identifier}")
        assert (gone.status, "was deleted" in gone.json["error"]) == (404, True)


async def test_long_replies_are_compressed_for_those_who_take_it(
    tmp_path: Path,
) -> None:
    append(tmp_path, *(row([0.0] * 8, number=number) for number in range(20)))
    async with serving(tmp_path) as client:
        await client.index(20)
        plain = await client.get("api/index", Accept_Encoding="identity")
        packed = await client.get("api/index", Accept_Encoding="br, gzip")
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert len(packed.body) < len(plain.body) / 2


async def test_two_evaluations_are_compared_as_compare_does(tmp_path: Path) -> None:
    write_invented_evaluations(tmp_path, steps=(0, 40))
    before, after = (tmp_path / "evaluation_invented" / f"step-{n}" for n in (0, 40))
    [expected] = compare_samples(
        *(read_groups(folder / "samples.jsonl")[0] for folder in (before, after))
    )
    async with serving(tmp_path) as client:
        await client.index(360)
        query = urlencode({"before": before, "after": after})
        pair = (await client.get(f"api/comparison?{query}")).json
        unknown = await client.get("api/comparison?before=a&after=b")
    assert set(pair["by_difficulty"]) == {"", "default", "0.25", "0.75"}
    whole = pair["by_difficulty"][""]
    tasks = expected.to_json()["tasks"]
    assert whole["tasks"] == tasks
    assert whole["said"].endswith(expected.excluded)
    assert unknown.status == 404


async def test_what_is_not_there_or_not_valid_is_refused_and_it_only_reads(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as client:
        for path, status, said in (
            ("api/search", 422, "text must have 1 to 1000 characters, got 0"),
            ("api/search?text=" + "x" * 1001, 422, "got 1001"),
            (
                "api/search?text=x&after=-1",
                422,
                "after must be an integer ≥ 0, got '-1'",
            ),
            ("api/search?text=x&after=" + "9" * 5000, 422, "after must be"),
            ("api/search?text=x&after=²", 422, "after must be"),
            ("api/group/none", 404, "no such group"),
            ("api/group/..%2F..%2Fetc", 404, ""),
            ("etc/passwd", 404, ""),
        ):
            reply = await client.get(path)
            assert reply.status == status, path
            assert said in (reply.json["error"] if said else ""), path
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
            reply = await client.get("api/index", method)
            assert (reply.status, reply.json["error"]) == (
                405,
                f"only GET is served, got '{method}'",
            )


async def test_a_note_is_stored_beside_the_dumps_and_shown_to_all(
    tmp_path: Path,
) -> None:
    append(tmp_path, row([1.0]))
    async with serving(tmp_path) as client:
        batch = await client.index(1)
        about = f"{batch['groups']['id'][0]}.1"
        note = json.dumps({"run": "r", "about": about, "text": "a shortcut?"})
        json_type = {"Content_Type": "application/json"}
        reply = await client.post("api/note", note, **json_type)
        assert (reply.status, reply.body) == (204, b"")
        [run] = (await client.get("api/index")).json["runs"]
        assert run["notes"] == {about: "a shortcut?"}
        for body, status, said in (
            (note.replace(about, "x"), 422, "about must be a rollout or a step"),
            (note.replace(about, about[:-1] + "2"), 404, "no such rollout"),
            (note.replace(about, about[:-1] + "0"), 404, "no such rollout"),
            (note.replace(about, "0123456789.1"), 404, "no such rollout"),
            (note.replace('"r"', '"s"'), 404, "no such run: 's'"),
            ("{", 422, ""),
            ('"' + "x" * 2**16, 413, "a note has at most 32768 bytes"),
        ):
            reply = await client.post("api/note", body, **json_type)
            assert (reply.status, said in reply.json["error"]) == (status, True)
    assert index_of(tmp_path)["runs"][0]["notes"] == {about: "a shortcut?"}


async def test_a_poll_has_the_notes_that_are_new(tmp_path: Path) -> None:
    append(tmp_path, row([1.0, 0.0]))

    async def notes(cursor: str) -> tuple[dict[str, str], str]:
        batch = (await client.get(f"api/index?since={cursor}")).json
        return batch["runs"][0]["notes"], batch["cursor"]

    async def store(about: str, text: str) -> None:
        note = json.dumps({"run": "r", "about": about, "text": text})
        reply = await client.post("api/note", note, Content_Type="application/json")
        assert reply.status == 204

    async with serving(tmp_path) as client:
        first = await client.index(1)
        about = f"{first['groups']['id'][0]}.2"
        await store(about, "one")
        await store("step 3", "two")
        new, second_cursor = await notes(first["cursor"])
        assert new == {about: "one", "step 3": "two"}
        assert (await notes(second_cursor))[0] == {}
        await store("step 3", "")
        await store("step 4", "x" * 2000)
        new, third_cursor = await notes(second_cursor)
        assert new == {"step 3": "", "step 4": "x" * 2000}
        assert (await notes(third_cursor))[0] == {}
        assert (await notes(""))[0].keys() == {about, "step 3", "step 4"}


def index_of(folder: Path) -> Any:
    """The index of a report on a folder."""
    return embed(read_report_data([folder]))[0]


async def test_no_other_site_writes_notes(tmp_path: Path) -> None:
    append(tmp_path, row([1.0]))
    note = json.dumps({"run": "r", "about": "step 1", "text": "x"})
    own = {"Content_Type": "application/json"}
    async with serving(tmp_path, token=TOKEN) as client:
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        for headers, status in (
            (own, 401),
            ({**bearer, "Content_Type": "text/plain"}, 403),
            ({**bearer, **own, "Origin": "https://evil.example"}, 403),
            ({**bearer, **own, "Origin": "null"}, 403),
            ({**bearer, **own, "Sec_Fetch_Site": "cross-site"}, 403),
        ):
            reply = await client.post("api/note", note, **headers)
            assert reply.status == status, headers
        own_origin = client.url.removesuffix("/")
        while True:  # until the run is read
            reply = await client.post(
                "api/note", note, **bearer, **own, Origin=own_origin
            )
            if reply.status != 404:
                break
            await asyncio.sleep(0.02)
    assert reply.status == 204


OWN_HOSTS = (
    "localhost:9000",
    "127.0.0.1",
    "127.0.0.1:1",
    "[::1]:80",
    socket.gethostname(),
)
OTHER_HOSTS = (
    "evil.example",
    "localhost.evil.example:8090",
    "",
    "[",
    "127.0.0.1.evil.example",
)
MALFORMED_HOSTS = (
    "127.0.0.1/healthz?",
    "[::1]:1/healthz#",
    "127.0.0.1:x",
    "x@127.0.0.1",
    "[::1",
)


async def statuses(
    client: Client, hosts: Sequence[str], path: str = "api/index"
) -> set[int]:
    return {(await client.get(path, Host=host)).status for host in hosts}


async def test_a_name_that_is_not_this_machines_is_refused_since_it_may_be_rebound(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, allowed_hosts=["gpu.Example"]) as client:
        assert await statuses(client, OWN_HOSTS) == {200}
        assert await statuses(client, ["gpu.example:443", "GPU.EXAMPLE"]) == {200}
        for path in ("", "api/index", "healthz"):
            assert await statuses(client, (*OTHER_HOSTS, *MALFORMED_HOSTS), path) <= {
                400,
                403,
            }
        reply = await client.get(Host="evil.example")
        assert "allow the name with --allow-host" in reply.json["error"]


async def test_other_sites_can_neither_read_nor_frame_the_page(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        for site in ("cross-site", "same-site"):
            assert (await client.get("api/index", Sec_Fetch_Site=site)).status == 403
            assert (await client.get("", Sec_Fetch_Site=site)).status == 200, (
                "a link to it"
            )
        reply = await client.get("api/index", Sec_Fetch_Site="same-origin")
    assert reply.status == 200
    assert "Access-Control-Allow-Origin" not in reply.headers
    assert reply.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert reply.headers["Content-Security-Policy"] == "frame-ancestors 'none'"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert reply.headers["Cache-Control"] == "no-store"


async def test_a_token_is_required_and_becomes_a_cookie(tmp_path: Path) -> None:
    async with serving(tmp_path, token=TOKEN) as client:
        port = client.url.rpartition(":")[2].strip("/")
        for path in (
            "",
            "?token=",
            "?token=wrong",
            "api/index",
            f"api/index?token={TOKEN}",
        ):
            reply = await client.get(path)
            assert (reply.status, "with its token" in reply.json["error"]) == (
                401,
                True,
            )
        assert (await client.get("healthz")).body == b"ok"
        opened = await client.get(f"?token={TOKEN}")
        assert (opened.status, opened.headers["Location"]) == (303, "./")
        assert opened.headers["Set-Cookie"] == (
            f"watch_{port}={TOKEN}; HttpOnly; Path=/; SameSite=lax"
        )
        for path in ("", "api/index"):
            assert (
                await client.get(path, Cookie=f"watch_{port}={TOKEN}")
            ).status == 200
            assert (await client.get(path, Cookie=f"watch_{port}=é")).status == 401
            assert (
                await client.get(path, Authorization=f"Bearer {TOKEN}")
            ).status == 200


async def test_the_address_has_the_token_and_a_name_that_others_reach(
    tmp_path: Path,
) -> None:
    for host, name in (("0.0.0.0", socket.gethostname()), ("127.0.0.1", "127.0.0.1")):
        async with LiveServer(
            LiveIndex([tmp_path]), PAGE, host=host, token=TOKEN
        ) as server:
            assert server.url.startswith(f"http://{name}:")
            assert server.url.endswith(f"/?token={TOKEN}")


async def test_an_address_in_use_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        port = int(client.url.rpartition(":")[2].strip("/"))
        with pytest.raises(FixableError, match=f"--port {port}: cannot listen"):
            async with LiveServer(LiveIndex([tmp_path]), PAGE, port=port):
                pass


class BrokenIndex(LiveIndex):
    """Has a bug until it is repaired."""

    repaired = False

    def update(self, seconds: float = 0.5) -> bool:
        if not self.repaired:
            raise ZeroDivisionError("the bug")
        return super().update(seconds)


async def test_a_bug_of_the_index_is_on_the_page_and_ends_nothing(
    tmp_path: Path,
) -> None:
    append(tmp_path, row([1.0]))
    index = BrokenIndex([tmp_path])
    async with serving(tmp_path, index) as client:
        while not (notes := (await client.index(0))["notes"]):
            await asyncio.sleep(0.02)
        assert "ZeroDivisionError: the bug" in notes[0]
        index.repaired = True
        while (await client.index(1))["notes"]:
            await asyncio.sleep(0.02)
        port = int(client.url.rpartition(":")[2].strip("/"))
    async with serving(tmp_path, port=port):
        pass  # it has left its port
