"""Measure the page of running runs: reading files, memory, replies, and one more group.

Rollouts are invented as in `benchmarks/report.py`. Seconds are of the processor where they say so:
other programs that run meanwhile don't count.

    python benchmarks/watch.py --browser
    python benchmarks/watch.py --rollouts 1000 --words 400
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any
from urllib.request import urlopen

from report import GROUP_SIZE, rows, write_rows

from reasoning_gym_environment.report.live import LiveIndex

DUMP = "reasoning_gym_environment_rollouts_invented_0000.jsonl"


@contextmanager
def measured(what: str) -> Iterator[None]:
    begin, processor = time.perf_counter(), time.process_time()
    yield
    seconds, own = time.perf_counter() - begin, time.process_time() - processor
    print(f"{what:32} {own:8.3f} s of the processor, {seconds:8.3f} s")


def memory() -> float:
    """The largest memory of this process so far, in MB (on Linux)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def read_all(live: LiveIndex) -> None:
    while live.update():
        pass


def search_all(live: LiveIndex, text: str) -> int:
    found, searched = 0, 0
    while searched < len(live):
        reply = live.search(text, after=searched)
        found, searched = found + len(reply["found"]), reply["searched"]
    return found


def append_group(folder: Path, at: str) -> None:
    row = next(rows(1, 100))
    with (folder / DUMP).open("a") as file:
        file.write(json.dumps(row | {"time": at}) + "\n")


def reply_of(batch: Callable[[], Any]) -> bytes:
    return gzip.compress(json.dumps(batch(), separators=(",", ":")).encode(), 4)


def measure(folder: Path) -> None:
    before = memory()
    live = LiveIndex([folder])
    with measured("read the files"):
        read_all(live)
    print(f"{'memory':32} {memory() - before:8.1f} MB more than {before:.0f} MB")
    with measured("the whole index"):
        reply = reply_of(live.batch)
    print(f"{'its size, compressed':32} {len(reply) / 1e6:8.2f} MB")
    cursor = live.batch()["cursor"]
    append_group(folder, "2027-01-01T00:00:00+00:00")
    time.sleep(1.0)  # the index looks at its files once a second
    with measured("one more group"):
        read_all(live)
        reply_of(lambda: live.batch(cursor))
    identifier = live.batch(cursor)["groups"]["id"][0]
    with measured("the texts of a group"):
        live.group(identifier)
    with measured("search in all texts"):
        search_all(live, "kakaka")


def measure_in_browser(folder: Path, rollouts: int) -> None:
    """Open the page of files that are read already, add a group, and search all texts."""
    from selenium import webdriver
    from selenium.webdriver.support.wait import WebDriverWait

    program = [sys.executable, "-m", "reasoning_gym_environment", "watch", str(folder)]
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    driver = webdriver.ChromeService(shutil.which("chromedriver"))
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    with subprocess.Popen([*program, "--port", "0"], stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        while (batch := json.load(urlopen(f"{url}api/index")))[
            "reading"
        ] < 1 or not batch["runs"]:
            time.sleep(0.5)
        with webdriver.Chrome(options=options, service=driver) as browser:
            wait = WebDriverWait(browser, 300, 0.02)
            with measured("open the page"):
                browser.get(url)
                wait.until(
                    lambda _: f"{rollouts:,}" in browser.find_element("id", "left").text
                )
            left = browser.find_element("id", "left").text
            append_group(folder, "2028-01-01T00:00:00+00:00")
            with measured("show one more group"):
                wait.until(lambda _: browser.find_element("id", "left").text != left)
            all_found = browser.find_element("id", "found").text
            with measured("search in the page"):
                browser.find_element("id", "text").send_keys("kakaka")
                wait.until(lambda _: search_ended(browser, all_found))
        process.terminate()


def search_ended(browser: Any, before: str) -> bool:
    found = browser.find_element("id", "found").text
    return found != before and not found.startswith("Searching")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=100_000)
    parser.add_argument(
        "--words", type=int, default=100, help="of a thought, in the median"
    )
    parser.add_argument(
        "--browser", action="store_true", help="measure in Chromium as well"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_rows(folder / DUMP, rows(options.rollouts // GROUP_SIZE, options.words))
        print(
            f"{options.rollouts:,} rollouts, {(folder / DUMP).stat().st_size / 1e6:.0f} MB"
        )
        measure(folder)
        if options.browser:
            measure_in_browser(folder, options.rollouts + GROUP_SIZE)


if __name__ == "__main__":
    main()
