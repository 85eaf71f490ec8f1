"""The blocking client against the real service, and against none."""

import asyncio
import json
import math
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.client import parse_headers
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from scripted_server import http, replying, serving
from served_rewards import served_rewards

from reasoning_gym_environment import ReasoningGym, Status
from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.service.client import (
    RewardClient,
    ServiceUnavailableError,
    split_stream_url,
)

pytestmark = pytest.mark.processes

CURRICULUM = {"tasks": ["gcd"], "complexity_mode": "curriculum"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RewardClient]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REASONING_GYM_REWARDS_TOKEN", "a secret of sixteen")
        with served_rewards(tmp_path_factory.mktemp("service")) as url:
            yield RewardClient(f"{url}/")


def test_completions_are_scored_with_the_token(client: RewardClient) -> None:
    [problem] = client.problems("scored", 1, CURRICULUM)
    oracle = str(math.gcd(*map(int, re.findall(r"\d+", problem["question"]))))
    right, wrong = client.score(
        problem["recipe"], [f"<answer>{oracle}</answer>", "no idea"]
    )
    assert (right.score, right.status, right.answer) == (1.0, Status.SOLVED, oracle)
    assert (wrong.score, wrong.status) == (0.0, Status.NO_ANSWER)


@pytest.mark.filterwarnings("ignore:Sending a large body")  # of the client
def test_completions_of_any_characters_are_scored_as_in_python(
    client: RewardClient,
) -> None:
    [problem] = client.problems("characters", 1, CURRICULUM)
    texts = [
        "<answer>\ud800</answer>",
        "\ud83d\ude00 <answer>1\udfff</answer>",
        "\ud800",
    ]
    with ReasoningGym(processes=1) as gym:
        recipe = gym.problem(problem["recipe"])
        expected = gym.score_many((recipe, text) for text in texts)
    scores = client.score(problem["recipe"], [*texts, *["数" * 2**18] * 4])
    assert [(s.score, s.status) for s in scores[:3]] == [
        (s.score, s.status) for s in expected
    ]
    assert scores[3].status is Status.NO_ANSWER, "3 MiB as UTF-8, 6 MiB as escapes"


def test_a_stream_is_drawn_from_and_observed(client: RewardClient) -> None:
    first, second = client.problems("ours", 2, CURRICULUM)
    assert first["recipe"]["task"] == "gcd"
    client.observe("ours", first["recipe"], solved=2, attempts=4)
    client.observe("ours", second["recipe"], solved=0, attempts=0)
    assert first not in client.problems("ours")


TRAINER = """
import sys
from reasoning_gym_environment.service.client import RewardClient

client = RewardClient(sys.argv[1])
for _ in range(12):
    [problem] = client.problems("run", 1, {options})
    for _ in range(2):  # a group comes in parts
        client.score(problem["recipe"], ["no idea"] * 2, stream="run")
    print(problem["recipe"]["seed"], problem["recipe"]["level"])
"""


def test_four_trainer_processes_share_one_curriculum(client: RewardClient) -> None:
    program = TRAINER.format(options={**CURRICULUM, "group_size": 4})
    command = [sys.executable, "-c", program, client.url]
    trainers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]
    printed = [trainer.communicate()[0].decode().split() for trainer in trainers]
    [last] = client.problems("run")
    assert [trainer.returncode for trainer in trainers] == [0] * 4
    seeds = [seed for lines in printed for seed in lines[::2]]
    assert len(set(seeds)) == 4 * 12
    assert all(int(lines[1]) > 0 for lines in printed)
    assert last["recipe"]["level"] == 0


def test_a_refused_request_is_an_error_with_the_services_words(
    client: RewardClient,
) -> None:
    with pytest.raises(
        ConfigurationError, match=r"/score replied with status 422: completions: "
    ):
        client.score({"task": "gcd", "seed": 1}, [])
    with pytest.raises(
        ConfigurationError, match="status 404: stream 'other' does not exist"
    ):
        client.problems("other")


def test_the_token_of_the_address_is_the_one_that_counts_and_is_never_printed(
    client: RewardClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login token password another")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("REASONING_GYM_REWARDS_TOKEN", "another")
    url = client.url.replace("://", "://token:a%20secret%20of%20sixteen@")
    with pytest.raises(
        ConfigurationError, match="status 404: stream 'other'"
    ) as refused:
        RewardClient(url).problems("other")
    with pytest.raises(ConfigurationError, match="a stream's name") as nameless:
        split_stream_url(url)
    assert "secret" not in f"{refused.value} {nameless.value}"


def test_the_variable_may_have_the_tokens_of_the_service_one_a_line(
    client: RewardClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "REASONING_GYM_REWARDS_TOKEN", "a secret of sixteen\nof another client\n"
    )
    assert len(client.problems("several", 1, CURRICULUM)) == 1


async def test_requests_go_through_the_proxy_of_the_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reply = json.dumps({"problems": [], "sampling": {}}).encode()
    async with replying(http(reply)) as url:
        monkeypatch.setenv("http_proxy", url)
        client = RewardClient("http://rewards.invalid:80", patience=0.0)
        with pytest.raises(ServiceUnavailableError, match="sent 0 of 1 problems"):
            await asyncio.to_thread(client.problems, "run")


def test_a_service_that_is_not_there_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ServiceUnavailableError, match=f"{url} does not reply"):
        RewardClient(url, patience=0.5).problems("ours")


OK = b"HTTP/1.1 200 OK\r\n\r\n"
TOO_HIGH = b'{"scores": [{"score": 1.5, "status": "solved"}]}'


@pytest.mark.parametrize(
    ("reply", "error", "says"),
    [
        (OK + b"<html>", ConfigurationError, "its reply is invalid"),
        (OK + b'{"scores": 3}', ConfigurationError, "its reply is invalid"),
        (OK + b'{"scores": []}', ServiceUnavailableError, "scored 0 of 1"),
        (
            OK + TOO_HIGH,
            ConfigurationError,
            r"scores\[0\].score must be in \[0, 1\], got 1.5",
        ),
        (
            b"HTTP/1.1 502 Bad Gateway\r\n\r\nno",
            ServiceUnavailableError,
            "status 502: 'no'",
        ),
        (
            b"HTTP/1.1 408 Request Timeout\r\n\r\n",
            ServiceUnavailableError,
            "status 408",
        ),
        (
            b"HTTP/1.1 429 Busy\r\nRetry-After: Wed, 21 Oct 2015 07:28:00 GMT\r\n\r\n",
            ServiceUnavailableError,
            "status 429",
        ),
        (b"", ServiceUnavailableError, "does not reply"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{",
            ServiceUnavailableError,
            "does not reply: ",
        ),
    ],
)
def test_another_servers_reply_is_an_error(
    reply: bytes, error: type[Exception], says: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as request:
                request.readline()
                length = int(parse_headers(request)["Content-Length"])
                # Closing with unread bytes would reset the connection.
                request.read(length)
                connection.sendall(reply)

        answering = threading.Thread(target=answer)
        answering.start()
        client = RewardClient(
            f"http://127.0.0.1:{server.getsockname()[1]}", patience=0.0
        )
        with pytest.raises(error, match=says):
            client.score({"task": "gcd", "seed": 1}, ["4"])
        answering.join()


@pytest.mark.parametrize("begins", [b"HTTP/1.1 200 OK\r\nX: ", OK])
async def test_a_reply_that_dribbles_ends_at_the_timeout(begins: bytes) -> None:
    async with replying(begins, b"x", pause=0.1, endless=True) as url:
        client = RewardClient(url, patience=0.0, timeout=1.0)
        with pytest.raises(ServiceUnavailableError, match="no whole reply within 1 s"):
            await asyncio.to_thread(client.problems, "run")


async def test_a_service_that_sends_more_problems_than_asked_for_is_refused() -> None:
    problem = {"recipe": {}, "question": "?", "asked_again": False}
    reply = json.dumps({"problems": [problem] * 3, "sampling": {}}).encode()
    async with replying(http(reply)) as url:
        with pytest.raises(ServiceUnavailableError, match="sent 3 of 2 problems"):
            await asyncio.to_thread(RewardClient(url, patience=0.0).problems, "run", 2)


@pytest.mark.parametrize("url", [None, "", "127.0.0.1:8080", "file:///etc/passwd"])
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        RewardClient(url)
    assert str(refused.value) == f"url must begin with http:// or https://, got {url!r}"


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8080/a",
        "http://127.0.0.1:8080",
        "http://127.0.0.1:8080/a/b",
        "http:///a",
        5,
        float("nan"),
        None,
    ],
)
def test_a_url_without_a_stream_is_refused(url: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=r"curriculum_url must be the address of a reward"
    ):
        split_stream_url(url)


@pytest.mark.parametrize(
    ("score", "said"),
    [
        ({"score": 0.0, "status": "solved"}, "is solved and has the score 0.0"),
        ({"score": None, "status": "solved"}, "is solved and has the score None"),
        ({"score": None, "status": "wrong"}, "is wrong and has the score None"),
        ({"score": 0.5, "status": "unscored"}, "is unscored and has the score 0.5"),
        ({"score": 0.5, "status": "wrong", "seconds": -5}, "seconds must be ≥ 0"),
    ],
)
async def test_a_score_that_contradicts_itself_is_refused(
    score: dict[str, Any], said: str
) -> None:
    async def reply(_: web.Request) -> web.Response:
        return web.json_response({"scores": [score]})

    async with serving([web.post("/score", reply)]) as url:
        with pytest.raises(ConfigurationError, match=said):
            await asyncio.to_thread(
                RewardClient(url).score, {"task": "gcd", "seed": 2}, ["x"]
            )


async def test_a_redirect_gets_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    async def elsewhere(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization", ""))
        return web.json_response({"scores": []})

    async def redirect(_: web.Request) -> web.Response:
        raise web.HTTPTemporaryRedirect(f"{other}/score")

    monkeypatch.setenv("REASONING_GYM_REWARDS_TOKEN", "a-token-of-24-characters")
    async with (
        serving([web.post("/score", elsewhere)]) as other,
        serving([web.post("/score", redirect)]) as url,
    ):
        score = RewardClient(url).score
        with pytest.raises(ConfigurationError, match="replied with status 307"):
            await asyncio.to_thread(score, {"task": "gcd", "seed": 2}, ["x"])
    assert seen == []
