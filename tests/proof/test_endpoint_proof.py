"""Endpoints with planted faults, behind real HTTP, and what `prove --url` makes of them."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from aiohttp import web
from certificate_values import require_valid

from reasoning_gym_environment import AsyncReasoningGym
from reasoning_gym_environment.cli import main
from reasoning_gym_environment.errors import TRY_AGAIN, FixableError
from reasoning_gym_environment.proof.certificate import as_json, of_endpoint
from reasoning_gym_environment.proof.endpoint_proof import (
    EndpointResult,
    prove_endpoint,
)
from reasoning_gym_environment.proof.endpoints import protocol_of
from reasoning_gym_environment.service.app import RewardService, ServiceSettings

Row = dict[str, Any]
Verify = Callable[[Row, str], float]
"""The reward of an answer to a row; the answer is empty without tags."""

ROWS = [
    {
        "question": f"Which number follows {1000 + 37 * number}?",
        "answer": str(1001 + 37 * number),
    }
    for number in range(12)
]


def exact(row: Row, answer: str) -> float:
    return float(answer.strip() == row["answer"])


def pays_echo(row: Row, answer: str) -> float:
    return float(answer == row["question"]) or exact(row, answer)


def pays_nothing_said(row: Row, answer: str) -> float:
    return float(not answer.strip()) or exact(row, answer)


def pays_lists(row: Row, answer: str) -> float:
    return float(row["answer"] in answer.replace(",", " ").split())


def pays_another_rows_answer(row: Row, answer: str) -> float:
    return float(answer in {other["answer"] for other in ROWS})


def pays_by_chance(row: Row, answer: str) -> float:
    return exact(row, answer) * random.choice((0.0, 1.0))


def refuses_a_label(row: Row, answer: str) -> float:
    return exact(row, answer) * (row["answer"] != ROWS[3]["answer"])


class PaysOnce:
    """Pays an answer to a row once, and never again."""

    def __init__(self) -> None:
        self._paid: set[str] = set()

    def __call__(self, row: Row, answer: str) -> float:
        # The first rows' answers are asked for in three forms, to learn which is paid.
        is_learned_from = int(row["answer"]) <= int(ROWS[4]["answer"])
        if exact(row, answer) and not is_learned_from:
            if answer in self._paid:
                return 0.0
            self._paid.add(answer)
        return exact(row, answer)


@asynccontextmanager
async def serving(
    handle: Callable[[web.Request], Any],
    path: str = "/verify",
    get: Mapping[str, Callable[[web.Request], Any]] = MappingProxyType({}),
) -> AsyncIterator[str]:
    """Serve a handler at a free port, and others of GET beside it; yields its URL."""
    app = web.Application()
    app.router.add_route("*", path, handle)
    for place, handle_get in get.items():
        app.router.add_get(place, handle_get)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"http://127.0.0.1:{port}{path}"
    finally:
        await runner.cleanup()


def answer_in(body: Row) -> str:
    text: str = body["response"]["output"][0]["content"][0]["text"]
    _, tag, rest = text.partition("<answer>")
    return rest.rpartition("</answer>")[0] if tag else ""


def rewarding(verify: Verify) -> Callable[[web.Request], Any]:
    async def handle(request: web.Request) -> web.Response:
        body = await request.json()
        return web.json_response({"reward": verify(body, answer_in(body))})

    return handle


async def proved(
    url: str, rows: list[Any] = ROWS, reply_seconds: float = 30.0
) -> EndpointResult:
    result = await prove_endpoint(
        url,
        protocol_of(url, anywhere=False),
        rows,
        items=20,
        seconds=100.0,
        reply_seconds=reply_seconds,
    )
    require_valid(json.loads(as_json(of_endpoint(result))))
    return result


def found(result: EndpointResult) -> set[tuple[str, str]]:
    return {(finding.check, finding.kind) for finding in result.findings}


async def test_a_sound_endpoint_is_proved_and_what_nobody_saw_is_named() -> None:
    async with serving(rewarding(exact)) as url:
        result = await proved(url)
    assert (result.verdict, result.findings) == ("proved", [])
    assert (result.protocol, result.form) == ("NeMo Gym", "<answer>…</answer>")
    assert {name: check.items for name, check in result.checks.items()} == {
        "reproducible": 12,
        "solvable": 12,
        "not_payable": 3,
        "contained": 1,
        "bounded": 12,
    }
    assert [one.check for one in result.not_checked] == [
        "contained",
        "levels",
        "disjoint",
    ]


@pytest.mark.parametrize(
    ("verify", "expected"),
    [
        (pays_echo, {("not_payable", "question")}),
        (pays_nothing_said, {("not_payable", "empty")}),
        (
            pays_lists,
            {
                ("not_payable", kind)
                for kind in (
                    *("several answers", "text appended", "denied answer"),
                    *("hedged answer", "changed number"),
                )
            },
        ),
        (pays_another_rows_answer, {("not_payable", "other item's answer")}),
        (refuses_a_label, {("solvable", "oracle")}),
        (PaysOnce(), {("contained", "state")}),
    ],
)
async def test_a_fault_is_named(verify: Verify, expected: set[tuple[str, str]]) -> None:
    async with serving(rewarding(verify)) as url:
        result = await proved(url)
    assert expected <= found(result)
    assert {check for check, _ in found(result)} == {check for check, _ in expected}
    assert result.verdict == "failed"


async def test_rewards_by_chance_are_told_from_an_effect_of_answers_before() -> None:
    async with serving(rewarding(pays_by_chance)) as url:
        result = await proved(url)
    assert ("reproducible", "differs") in found(result)
    assert "state" not in {kind for _, kind in found(result)}


@pytest.mark.parametrize("form", [r"\boxed{", ""])
async def test_the_form_of_answers_is_learned_from_the_rows(form: str) -> None:
    async def handle(request: web.Request) -> web.Response:
        body = await request.json()
        text = body["response"]["output"][0]["content"][0]["text"]
        paid = text == form + body["answer"] + "}" * bool(form)
        return web.json_response({"reward": float(paid)})

    async with serving(handle) as url:
        result = await proved(url)
    assert (result.verdict, result.form) == ("proved", rf"{form}…{'}' * bool(form)}")


async def test_a_text_that_hangs_its_request_is_a_finding() -> None:
    async def handle(request: web.Request) -> web.Response:
        body = await request.json()
        if answer_in(body) == "None":
            await asyncio.sleep(60)
        return web.json_response({"reward": exact(body, answer_in(body))})

    async with serving(handle) as url:
        result = await proved(url, rows=ROWS[:3], reply_seconds=0.5)
    assert found(result) == {("bounded", "killed")}
    assert "empty (timeout)" in result.checks["bounded"].reason


async def test_an_episode_that_hangs_is_a_finding_though_its_session_lives() -> None:
    """As OpenEnv's server, which sends a ping now and then while a step runs."""
    fields = {"metadata": {"type": "object"}, "said": {"type": "string"}}
    schema = {"action": {"properties": fields, "required": ["said"]}}

    async def describe(request: web.Request) -> web.Response:
        return web.json_response(schema)

    async def play(request: web.Request) -> web.WebSocketResponse:
        session = web.WebSocketResponse(heartbeat=0.2)
        await session.prepare(request)
        row: Row = {}
        async for message in session:
            sent = json.loads(message.data)
            if sent["type"] == "reset":
                row = ROWS[sent["data"]["number"]]
                reply = {"observation": row["question"], "reward": None}
            else:
                if sent["data"]["said"] == "None":
                    await asyncio.sleep(60)
                reply = {"observation": "", "reward": exact(row, sent["data"]["said"])}
            await session.send_json({"type": "observation", "data": reply})
        return session

    rows: list[Any] = [
        {**row, "reset": {"number": number}} for number, row in enumerate(ROWS[:3])
    ]
    async with serving(play, "/ws", get={"/schema": describe}) as url:
        address = url.removesuffix("/ws") + "/step"
        result = await proved(address, rows, reply_seconds=1.0)
    assert (result.protocol, result.form) == ("OpenEnv", "…")
    assert found(result) == {("bounded", "killed")}
    assert "empty (timeout)" in result.checks["bounded"].reason


async def test_a_hostile_text_that_takes_the_endpoint_down_is_a_finding() -> None:
    dead = False

    async def handle(request: web.Request) -> web.Response:
        nonlocal dead
        body = await request.json()
        dead = dead or "SystemExit" in answer_in(body)
        if dead:
            raise web.HTTPInternalServerError
        return web.json_response({"reward": exact(body, answer_in(body))})

    async with serving(handle) as url:
        result = await proved(url)
    assert found(result) == {("contained", "lost")}
    assert "SystemExit" in result.checks["contained"].example


async def test_rows_without_an_answer_say_what_nobody_knows() -> None:
    rows: list[Any] = [{"question": row["question"]} for row in ROWS]

    def pays_empty(row: Row, answer: str) -> float:
        return float(not answer)

    async with serving(rewarding(pays_empty)) as url:
        result = await proved(url, rows)
    assert ("not_payable", "empty") in found(result)
    assert result.checks["solvable"].verdict == "not_checked"
    assert "12 rows have no answer" in result.checks["solvable"].reason
    assert result.oracle is None


async def test_no_wrong_answer_is_called_unpaid_where_no_right_one_is_paid() -> None:
    async with serving(rewarding(lambda row, answer: 0.0)) as url:
        result = await proved(url)
    assert result.checks["solvable"].verdict == "failed"
    assert result.checks["not_payable"].verdict == "not_checked"


async def test_rows_that_cannot_be_sent_and_ambiguous_ones_are_named() -> None:
    twice = {**ROWS[0], "answer": "7"}
    async with serving(rewarding(exact)) as url:
        dated = {**ROWS[1], "day": date(2026, 1, 1)}
        result = await proved(url, [*ROWS, "torn", "[1]", dated, twice])
    assert [one.reason.partition(":")[0] for one in result.not_checked[:3]] == [
        "row 13",
        "row 14",
        "row 15",
    ]
    assert ("solvable", "ambiguous") in found(result)


async def test_rewards_beyond_0_to_1_are_a_warning() -> None:
    def verify(row: Row, answer: str) -> float:
        return exact(row, answer) or -1.0

    async with serving(rewarding(verify)) as url:
        result = await proved(url)
    assert found(result) == {("solvable", "range")}
    assert result.checks["solvable"].verdict == "warning"
    assert result.verdict == "proved"


REPLIES: dict[str, Callable[[], web.Response]] = {
    "not JSON": lambda: web.Response(text="<html>"),
    "500": lambda: web.Response(status=500),
    "the reward nan": lambda: web.Response(text='{"reward": NaN}'),
    "digits": lambda: web.Response(text=f'{{"reward": 1{"0" * 400}}}'),
    "without a number": lambda: web.json_response({"reward": "1.0"}),
    "bytes": lambda: web.json_response({"reward": 1, "more": "x" * 2**23}),
    "JSON: '[[": lambda: web.Response(text="[" * 99_999),
    "422": lambda: web.Response(status=422, text="no such field"),
    "404": lambda: web.Response(status=404),
    "302, a redirect": lambda: web.Response(
        status=302, headers={"Location": "http://10.0.0.1/verify"}
    ),
}


@pytest.mark.parametrize("words", REPLIES)
async def test_an_endpoint_that_fails_is_an_error_and_no_finding(words: str) -> None:
    async def handle(request: web.Request) -> web.Response:
        await request.read()
        return REPLIES[words]()

    async with serving(handle) as url:
        with pytest.raises(FixableError) as raised:
            await proved(url)
    assert words in str(raised.value)


async def test_an_endpoint_that_is_not_there_may_be_there_later() -> None:
    async with serving(rewarding(exact)) as url:
        pass
    with pytest.raises(FixableError) as raised:
        await proved(url)
    assert raised.value.exit_status == TRY_AGAIN


@pytest.mark.processes
async def test_the_reward_service_is_proved_by_its_recipes() -> None:
    async with (
        AsyncReasoningGym(processes=1) as gym,
        RewardService(gym, ServiceSettings(port=0)) as service,
    ):
        problems = await gym.problems("gcd", count=12)
        rows: list[Any] = [
            {
                "recipe": problem.recipe.to_json(),
                "question": problem.question,
                "answer": problem.oracle,
            }
            for problem in problems
        ]
        result = await proved(f"{service.url}/score", [*rows, {"question": "Who?"}])
    assert (result.verdict, result.findings, result.oracle) == ("proved", [], 1.0)
    assert "neither a recipe nor an entry" in result.not_checked[0].reason


@pytest.mark.processes
async def test_the_command_prints_the_checks_and_fails_by_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, ROWS)))
    async with serving(rewarding(pays_nothing_said)) as url:
        command = ["prove", "--rows", str(file), "--url", url]
        assert await asyncio.to_thread(main, command) == 1
        assert "not payable   failed  '' solves 100%" in capsys.readouterr().out
        assert await asyncio.to_thread(main, [*command, "--json"]) == 1
        certificate = json.loads(capsys.readouterr().out)
    require_valid(certificate)
    assert certificate["endpoint"]["rows"] == 12


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--url", "http://10.0.0.1/verify"], "add --yes"),
        (["--url", "http://127.0.0.1/other"], "got '/other'"),
        (["--url", "ftp://127.0.0.1/verify"], "got 'ftp://127.0.0.1/verify'"),
        (["--url", "http://127.0.0.1/verify", "gcd"], "takes no tasks"),
        (["--yes"], "--yes belongs to --url"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    options: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(ROWS[0]))
    assert main(["prove", "--rows", str(file), *options]) == 2
    assert words in capsys.readouterr().err
