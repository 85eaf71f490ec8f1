"""The page of a running run in a real browser: what comes in changes nothing that was chosen."""

import base64
import json
import re
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from browsing import WebDriverWait, choose, open_section, until
from chromium import needs_chromium
from invented_run import write_invented_evaluations, write_invented_run
from process_tree import PROC, descendants
from report_files import row

from reasoning_gym_environment.report.page import write_report
from reasoning_gym_environment.report.process import WatchProcess
from reasoning_gym_environment.storage.run_record import record_path

pytestmark = [needs_chromium, pytest.mark.processes, pytest.mark.nightly]

DUMP = "reasoning_gym_environment_rollouts_{}_0000.jsonl"
TASKS = ("gcd", "lcm", "sudoku")
TOKEN = "a-token-of-24-characters"


@contextmanager
def watching(folder: Path, *options: str, port: int = 0) -> Iterator[tuple[str, Any]]:
    """The address of the page, and its process."""
    program = [sys.executable, "-m", "reasoning_gym_environment", "watch", str(folder)]
    process = subprocess.Popen(
        [*program, "--port", str(port), *options], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.kill()


def write(folder: Path, numbers: range, run: str = "r") -> None:
    """Append groups as a run does; texts name their group."""
    now = datetime.now(timezone.utc)
    with (folder / DUMP.format(run)).open("a") as file:
        for number in numbers:
            texts = [
                f"<think>t</think><answer>{run} {number}.{i}</answer>" for i in range(4)
            ]
            known = row(
                [1.0, 0.0, 1.0, 0.0],
                task=TASKS[number % 3],
                number=number,
                texts=texts,
                time=(now + timedelta(milliseconds=number)).isoformat(),
            )
            file.write(json.dumps(known | {"run": run}) + "\n")


def text_of(browser: Any, name: str) -> str:
    return str(
        browser.execute_script(
            "return document.getElementById(arguments[0]).textContent", name
        )
    )


def has(name: str, text: str) -> str:
    return f"document.getElementById({name!r}).textContent.includes({text!r})"


def open_page(browser: Any, url: str, groups: int) -> None:
    browser.get(url)
    until(browser, "document.documentElement.dataset.page === 'shown'")
    until(browser, f"{has('left', f'{groups} groups')}")


def complaints(browser: Any) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser")]


def test_what_comes_in_changes_neither_filters_nor_place_nor_the_open_rollout(
    browser: Any, tmp_path: Path
) -> None:
    write(tmp_path, range(60))
    with watching(tmp_path) as (url, _):
        open_page(browser, url, 60)
        choose(browser, "task", "gcd")
        until(browser, has("left", "20 groups"))
        browser.execute_script("document.getElementById('rows').scrollTop = 400")
        until(browser, "document.querySelectorAll('#rollout-body tr[id]').length > 5")
        browser.execute_script(
            "document.querySelectorAll('#rollout-body tr[id]')[9].click()"
        )
        until(browser, has("detail", "r "))
        browser.execute_script("window.scrollTo(0, 700)")
        place = "[window.scrollY, location.hash, document.getElementById('task').value]"
        before = browser.execute_script(f"return {place}")
        shown = text_of(browser, "detail").partition("<answer>")[2]
        write(tmp_path, range(60, 90))
        until(browser, has("left", "30 groups"))
        assert browser.execute_script(f"return {place}") == before
        assert text_of(browser, "detail").partition("<answer>")[2] == shown
        assert (
            browser.execute_script("return document.getElementById('rows').scrollTop")
            > 0
        )
        assert text_of(browser, "connection") == "live"
    assert complaints(browser) == []


def test_a_run_is_waited_for_and_the_next_one_appears_and_says_that_it_fails(
    browser: Any, tmp_path: Path
) -> None:
    with watching(tmp_path) as (url, _):
        browser.get(url)
        title = "document.getElementById('title').textContent"
        until(browser, f"{title} === 'Waiting for the first group'")
        write(tmp_path, range(3))
        until(browser, f"{title} === 'run r' && {has('found', '12 of 12')}")
        now = datetime.now(timezone.utc).isoformat()
        record = {"run": "next", "started": now, "updated": now, "failures": 5}
        record_path(tmp_path, "next").write_text(json.dumps(record))
        until(browser, has("healths", "Inference fails: lost 5 groups in a row"))
        write(tmp_path, range(3), "next")
        until(browser, has("left", "6 groups"))
        assert "run next" in text_of(browser, "run-table")
        assert complaints(browser) == []


def printed_curves(browser: Any) -> int:
    """The Bézier curves in a print of the page: the points of charts are circles."""
    pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {})["data"])
    streams = re.findall(rb"stream\n(.*?)\nendstream", pdf, re.DOTALL)
    deflated = [each for each in streams if each.startswith(b"x")]
    operators = b" ".join(zlib.decompress(each) for each in deflated)
    return len(re.findall(rb"\sc\s", operators))


def test_a_print_has_the_charts_that_were_never_shown(
    browser: Any, tmp_path: Path
) -> None:
    write_invented_run(tmp_path, 200)
    write_invented_evaluations(tmp_path, steps=(0, 40), items=1)
    evaluated = 2 * 3 * 12
    with watching(tmp_path) as (url, _):
        open_page(browser, url, 200 + evaluated)
        at_first = printed_curves(browser)
        for section in ("time", "distributions", "evaluations"):
            open_section(browser, section)
            for chart in browser.find_elements("css selector", f"#{section} .chart"):
                browser.execute_script("arguments[0].scrollIntoView()", chart)
                WebDriverWait(browser, 60, 0.05).until(
                    lambda _, chart=chart: chart.find_elements("css selector", "path")
                )
        assert at_first == printed_curves(browser) > 1000
    assert complaints(browser) == []


def test_notes_on_a_rollout_and_a_step_are_stored_and_stand_in_a_report(
    browser: Any, tmp_path: Path
) -> None:
    write_invented_run(tmp_path, 40)
    hostile = "<img src=x onerror='window.hacked = 1'> a shortcut?"

    def store(opens: str, text: str) -> None:
        browser.execute_script("document.querySelector(arguments[0]).click()", opens)
        browser.find_element("id", "note-text").send_keys(text)
        browser.find_element("id", "note-save").click()
        until(browser, "!document.getElementById('note').open")

    with watching(tmp_path) as (url, _):
        open_page(browser, url, 40)
        browser.execute_script("document.querySelector('#rollout-body tr[id]').click()")
        until(browser, has("detail", "Add a note"))
        store("#detail [data-key^='note ']", hostile)
        until(browser, has("detail", f"Note: {hostile}"))
        choose(browser, "note-step", "3")
        store("#note-open", "the server restarted")
        opened_rollout = browser.execute_script("return location.hash")
        browser.get("about:blank")  # or the page asks a server that is gone
        assert complaints(browser) == []
    write_report([tmp_path], tmp_path / "report.html")
    browser.get((tmp_path / "report.html").as_uri() + opened_rollout)
    until(browser, has("detail", f"Note: {hostile}"))
    told = "document.getElementById('event-list').textContent"
    assert browser.execute_script(f"return {told}") == "step 3: the server restarted "
    assert not browser.find_element("id", "note-form").is_displayed()
    assert browser.execute_script("return window.hacked") is None
    assert complaints(browser) == []


def test_a_server_that_is_away_is_asked_until_it_is_back(
    browser: Any, tmp_path: Path
) -> None:
    write(tmp_path, range(12))
    with watching(tmp_path) as (url, process):
        open_page(browser, url, 12)
        process.send_signal(signal.SIGKILL)
        until(browser, has("connection", "Not connected since"))
        assert text_of(browser, "healths").startswith("○")
    write(tmp_path, range(12, 15))
    port = int(url.rpartition(":")[2].strip("/"))
    with watching(tmp_path, port=port):
        until(browser, has("left", "15 groups"))
        assert text_of(browser, "connection") == "live"


def test_a_page_says_that_its_run_has_ended_and_where_its_report_is(
    browser: Any, tmp_path: Path
) -> None:
    watch = WatchProcess([tmp_path], 0)
    with closing(watch):
        url = watch.url()
        write(tmp_path, range(12))
        open_page(browser, url, 12)
        assert "tokens per second" in text_of(browser, "healths")
        now = datetime.now(timezone.utc).isoformat()
        record = {"run": "r", "started": now, "updated": now, "ended": now}
        record_path(tmp_path, "r").write_text(json.dumps(record))
        watch.close(tmp_path / "report.html")
    until(browser, "document.getElementById('connection').innerText === 'ended'")
    said = text_of(browser, "healths")
    assert f"The run has ended. Its texts are in {tmp_path}/report.html." in said
    assert f"Ended {now[:10]}" in said
    assert "rollouts per second" not in said


def test_texts_are_searched_and_a_deleted_file_is_told(
    browser: Any, tmp_path: Path
) -> None:
    write(tmp_path, range(12))
    with watching(tmp_path) as (url, _):
        open_page(browser, url, 12)
        choose(browser, "where", "R 7.2")
        until(browser, has("found", "1 of 48"))
        (tmp_path / DUMP.format("r")).unlink()
        browser.execute_script("document.querySelector('#rollout-body tr[id]').click()")
        until(browser, has("detail", "was deleted or replaced"))


def test_a_link_with_a_token_keeps_its_fragment_and_loses_its_token(
    browser: Any, tmp_path: Path
) -> None:
    write(tmp_path, range(12))
    token = tmp_path / "token"
    token.write_text(TOKEN)
    with watching(tmp_path, "--token-file", str(token)) as (url, _):
        assert url.endswith(f"/?token={TOKEN}")
        open_page(browser, f"{url}#task=lcm", 4)
        assert browser.current_url == f"{url.partition('?')[0]}#task=lcm"
        browser.delete_all_cookies()
        until(browser, has("connection", "Not connected"))


@pytest.mark.nightly
def test_the_page_follows_a_demo_that_leaves_no_process_behind(
    browser: Any, tmp_path: Path
) -> None:
    demo = [
        sys.executable,
        "-m",
        "reasoning_gym_environment",
        "demo",
        "--seconds",
        "600",
    ]
    with subprocess.Popen(
        [*demo, "--data-dumps-dir", str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip().rpartition(" ")[2]
        try:
            browser.get(url)
            counts = set[str]()
            begin = time.monotonic()
            while len(counts) < 4 and time.monotonic() < begin + 240:
                counts.add(text_of(browser, "left"))
                time.sleep(0.2)
            assert len(counts) == 4
            assert "tokens per second" in text_of(browser, "healths")
            started = descendants(process.pid) if PROC.exists() else {process.pid}
        finally:
            process.terminate()
        until(browser, "document.getElementById('connection').innerText === 'ended'")
        assert "The run has ended" in text_of(browser, "healths")
        process.wait(timeout=60)
    assert started
    WebDriverWait(browser, 30, 0.1).until(
        # Not even a zombie.
        lambda _: not any((PROC / str(pid)).exists() for pid in started)
    )
