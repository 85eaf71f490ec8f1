"""`/docs` is a page for people: it needs a token as other routes do, and no network."""

import asyncio
import re
from inspect import signature

import aiohttp
import pytest
from chromium import chromium, needs_chromium
from fastapi import HTTPException
from page_blocks import ROOT

from reasoning_gym_environment import AsyncReasoningGym
from reasoning_gym_environment.commands.rewards import LEAST_TOKEN
from reasoning_gym_environment.service import _messages as messages
from reasoning_gym_environment.service._docs_page import docs_page
from reasoning_gym_environment.service._queue import ScoringQueue
from reasoning_gym_environment.service._streams import NamedStreams
from reasoning_gym_environment.service._targets import read_json
from reasoning_gym_environment.service.app import RewardService, ServiceSettings
from reasoning_gym_environment.service.client import STREAM_NAME

SESSION = pytest.mark.asyncio(loop_scope="session")

TOKEN = "a-token-of-24-characters"


@SESSION
async def test_the_page_has_every_route_type_and_limit_and_nothing_from_elsewhere(
    service: RewardService, session: aiohttp.ClientSession
) -> None:
    async with session.get(f"{service.url}/docs") as response:
        page = await response.text()
        assert response.content_type == "text/html"
        policy = response.headers["Content-Security-Policy"]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    document = service.app.openapi()
    for path, methods in document["paths"].items():
        for method in methods:
            assert f"<code>{method.upper()} {path}</code>" in page
    ids = set(re.findall(r'id="(\w+)"', page))
    assert ids == document["components"]["schemas"].keys()
    targets = set(re.findall(r'href="([^"]*)"', page))
    assert targets <= {"openapi.json", *(f"#{name}" for name in ids)}
    assert not re.search(r"<script|<img|<link|src=|url\(|@import", page)
    for limit in (
        "of at most 524,288 bytes",
        "array, items ≥ 1, items ≤ 256, each string, characters ≤ 524,288",
        "integer, ≥ 1, ≤ 64, default <code>1</code>",
        "<td>429</td><td>Too many completions are pending: see Retry-After.</td>",
    ):
        assert limit in page


def test_what_a_document_says_is_text() -> None:
    info = {"title": "<b>", "version": "&", "description": "<script>"}
    field = {"type": "string", "description": "<i>", "default": "<u>"}
    schemas = {"<p>": {"properties": {"<a>": field}}}
    page = docs_page({"info": info, "paths": {}, "components": {"schemas": schemas}})
    for text in ("<b>", "<script>", "<i>", "<u>", '"<p>"', "<a>"):
        assert text not in page
    assert "&lt;script&gt;" in page


def test_the_documentation_has_the_limits_of_the_code() -> None:
    page = (ROOT / "docs" / "rewards.md").read_text(encoding="utf-8")
    streams = signature(NamedStreams).parameters
    problems = messages.ProblemsRequest.model_json_schema()["properties"]["count"]
    results = messages.ObserveRequest.model_json_schema()["properties"]["results"]
    key = messages.ScoreRequest.model_json_schema()["properties"]["idempotency_key"]
    assert results["maxItems"] == messages.MAX_COMPLETIONS
    for row in (
        f"a token | at least {LEAST_TOKEN} characters",
        f"completions, or results, of one request | {messages.MAX_COMPLETIONS}",
        f"a completion | {messages.MAX_CHARACTERS:,} characters",
        f"problems of one request | {problems['maximum']:g}",
        f"JSON | {messages.MAX_VALUES:,} values, 200 levels, no NaN",
        "the name of a stream, and an `idempotency_key` | 64 and "
        f"{key['anyOf'][0]['maxLength']} characters",
        f"streams, and those in use | {streams['most_files'].default:,} and "
        f"{streams['most'].default}",
        "a completion's wait | "
        f"{signature(ScoringQueue).parameters['longest_wait'].default:g} s; then 503",
    ):
        assert f"\n| {row} |\n" in page
    assert re.fullmatch(STREAM_NAME, "a" * 64)
    assert not re.fullmatch(STREAM_NAME, "a" * 65)
    read_json("[" * 200 + "]" * 200, "the body")
    with pytest.raises(HTTPException, match="400"):
        read_json("[" * 202 + "]" * 202, "the body")


@SESSION
@needs_chromium
@pytest.mark.nightly
async def test_a_person_with_the_token_reads_it_in_a_browser(
    gym: AsyncReasoningGym,
) -> None:
    def read(url: str) -> None:
        with chromium() as browser:
            # Chromium sends what the address has only after it was asked for.
            browser.get(f"{url}/docs".replace("://", f"://any:{TOKEN}@"))
            title = browser.find_element("tag name", "h1").text
            assert title.startswith("reasoning-gym rewards ")
            browser.find_element("link text", "ScoreRequest").click()
            section = browser.find_element("id", "ScoreRequest")
            place = "return arguments[0].getBoundingClientRect().top"
            assert abs(browser.execute_script(place, section)) < 5
            table = section.find_element("xpath", "following-sibling::table")
            assert "items ≤ 256" in table.text
            assert browser.get_log("browser") == []

    async with RewardService(gym, ServiceSettings(port=0, token=TOKEN)) as service:
        await asyncio.to_thread(read, service.url)
