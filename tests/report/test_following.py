"""The page of a run that still writes: it is updated in place."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from chromium import chromium, needs_chromium
from report_files import row, write

from reasoning_gym_environment.report.follow import LiveIndex
from reasoning_gym_environment.report.live import LiveServer, LiveSettings
from reasoning_gym_environment.report.page import live_page

pytest.importorskip("selenium.webdriver")
pytestmark = [needs_chromium, pytest.mark.processes]

NAME = "reasoning_gym_environment_rollouts_r_0000.jsonl"


def groups(start: int, end: int) -> list[dict[str, Any]]:
    return [
        row([1.0, 0.0], number=n, task=("gcd", "lcm")[n % 2], question=f"Question {n}?")
        for n in range(start, end)
    ]


def append(folder: Path, rows: list[dict[str, Any]]) -> None:
    with (folder / NAME).open("a") as file:
        file.write("".join(json.dumps(each) + "\n" for each in rows))


@pytest.fixture
async def followed(tmp_path: Path) -> AsyncIterator[tuple[Path, str]]:
    """A folder with forty groups, and the address of its page."""
    write(tmp_path, groups(0, 40), NAME)
    async with LiveServer(LiveIndex([tmp_path]), live_page(), LiveSettings()) as server:
        yield tmp_path, server.url


async def shows(browser: Any, condition: str) -> None:
    for _ in range(600):
        if await asyncio.to_thread(browser.execute_script, f"return {condition}"):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"never true: {condition}")


async def in_browser(browser: Any, script: str) -> Any:
    return await asyncio.to_thread(browser.execute_script, script)


FOUND = "document.getElementById('found').textContent"
DETAIL = "document.getElementById('detail').textContent"


async def test_what_is_read_stays_while_groups_come(followed: tuple[Path, str]) -> None:
    folder, url = followed
    with chromium() as browser:
        get: Callable[[str], None] = browser.get
        await asyncio.to_thread(get, url)
        await shows(browser, f"{FOUND}.startsWith('80 of 80')")
        await in_browser(browser, "document.querySelector(\"[data-key='task gcd']\").click()")
        await shows(browser, f"{FOUND}.startsWith('40 of 80')")
        await in_browser(browser, "document.getElementById('rows').scrollTop = 540")
        await in_browser(browser, "document.querySelectorAll('#rows [role=option]')[8].click()")
        await shows(browser, f"{DETAIL}.includes('Question')")
        top = "document.querySelector('#rows [aria-selected=true]').getBoundingClientRect().top"
        before = await in_browser(browser, f"return [{top}, location.hash, {DETAIL}]")
        append(folder, groups(40, 50))
        await shows(browser, f"{FOUND}.startsWith('50 of 100')")
        await shows(browser, "document.querySelector('#rows [aria-selected=true]') !== null")
        after = await in_browser(browser, f"return [{top}, location.hash, {DETAIL}]")
        assert after[:2] == before[:2]
        assert after[2].partition("gcd")[2] == before[2].partition("gcd")[2]
        await in_browser(
            browser,
            "const t = document.getElementById('text'); t.value = 'question 44?';"
            "t.dispatchEvent(new Event('input'))",
        )
        await shows(browser, f"{FOUND}.startsWith('2 of 100')")
        assert await asyncio.to_thread(browser.get_log, "browser") == []


async def test_a_run_without_groups_is_waited_for(tmp_path: Path) -> None:
    async with LiveServer(LiveIndex([tmp_path]), live_page(), LiveSettings()) as server:
        with chromium() as browser:
            await asyncio.to_thread(browser.get, server.url)
            title = "document.getElementById('title').textContent"
            await shows(browser, f"{title} === 'Waiting for the first group'")
            write(tmp_path, groups(0, 3), NAME)
            await shows(browser, f"{title} === 'run r' && {FOUND}.startsWith('6 of 6')")
            assert await asyncio.to_thread(browser.get_log, "browser") == []


async def test_a_server_that_is_away_is_named(followed: tuple[Path, str]) -> None:
    _, url = followed
    with chromium() as browser:
        await asyncio.to_thread(browser.get, url)
        await shows(browser, "document.getElementById('connection').textContent === 'live'")
        await in_browser(browser, "globalThis.fetch = () => Promise.reject(new Error('gone'))")
        await shows(browser, "document.getElementById('connection').className.includes('lost')")
