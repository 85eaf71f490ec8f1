"""Measure reports of many rollouts: their size, and the time to make, open, filter and search them.

Rollouts are invented: a random question, a thought of random words, levels that rise.

    python benchmarks/report.py
    python benchmarks/report.py --rollouts 50000 --keep FOLDER
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from reasoning_gym_environment.records import (
    Attempt,
    Completion,
    GroupResult,
    Problem,
    Recipe,
    Reward,
    Status,
    Verdict,
)
from reasoning_gym_environment.report.page import write_report
from reasoning_gym_environment.storage.rows import StoredGroup
from reasoning_gym_environment.tasks.facts import known_categories

GROUP_SIZE = 8
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
SYLLABLES = ["ka", "lo", "mi", "re", "su", "ta", "ven", "dor", "pil", "ash"]
FAILURES = [Status.WRONG] * 8 + [
    Status.NO_ANSWER,
    Status.SEVERAL_ANSWERS,
    Status.TIMEOUT,
]


def text(rng: random.Random, words: int) -> str:
    """Write words of about six characters, which compress about as well as English."""
    return " ".join(
        rng.choice(SYLLABLES) + rng.choice(SYLLABLES) + rng.choice(SYLLABLES[:6])
        for _ in range(words)
    )


def attempt(rng: random.Random, skill: float, words: int) -> Attempt:
    solved = rng.random() < skill
    status = Status.SOLVED if solved else rng.choice(FAILURES)
    answer = (
        str(rng.randrange(1000)) if status in (Status.SOLVED, Status.WRONG) else None
    )
    length = max(5, round(rng.lognormvariate(0, 0.7) * words))
    score = float(solved) or (
        round(rng.random() * 0.4, 2) if rng.random() < 0.1 else 0.0
    )
    said = f"<think>{text(rng, length)}</think><answer>{answer}</answer>"
    tokens = round(length * 1.4)
    return Attempt(
        completion=Completion(
            text=said,
            tokens=(1,) * (200 + tokens),
            masks=(-100,) * 200 + (1,) * tokens,
            logprobs=None,
            finish_reason="stop" if answer else "length",
        ),
        answer=answer,
        verdict=Verdict(
            score=score, status=status, seconds=0.001, raw_score=0.0, tagged_score=score
        ),
        reward=Reward(value=score),
    )


def rows(
    groups: int, words: int, *, evaluation: bool = False
) -> Iterator[dict[str, Any]]:
    """Make the rows of a policy that improves, on levels that rise with it."""
    rng = random.Random(evaluation)
    tasks = sorted(known_categories())
    talents = {task: rng.betavariate(2, 2.5) for task in tasks}
    for number in range(groups):
        task = rng.choice(tasks)
        progress = 1.0 if evaluation else number / groups
        level = None if evaluation else min(3, int(progress * 4 * rng.random() * 1.5))
        skill = talents[task] * (0.5 + 0.5 * progress) * (1 - 0.12 * (level or 0))
        parameters = {} if level is None else {"max_value": 9}
        seed = 2 * number + evaluation
        recipe = Recipe(task=task, seed=seed, level=level, parameters=parameters)
        problem = Problem(recipe=recipe, question=text(rng, 80), oracle="42", entry=b"")
        size = 1 if evaluation else GROUP_SIZE
        attempts = tuple(attempt(rng, skill, words) for _ in range(size))
        prompt = [
            {"role": "system", "content": "Think, then answer."},
            {"role": "user", "content": problem.question},
        ]
        run = {
            "run": "invented",
            "time": (START + timedelta(seconds=number)).isoformat(),
        }
        group = GroupResult(problem=problem, attempts=attempts)
        yield StoredGroup.from_result(group, prompt, run).to_json()


def write_rows(path: Path, lines: Iterator[dict[str, Any]]) -> None:
    with path.open("w") as file:
        for row in lines:
            file.write(json.dumps(row) + "\n")


FILTER = """const [name, value, done] = arguments;
const field = document.getElementById(name);
const found = document.getElementById("found");
found.textContent = "";
const begin = performance.now();
field.value = value;
field.dispatchEvent(new Event("input"));
field.dispatchEvent(new Event("change"));
const wait = () => {
  const drawn = document.documentElement.dataset.charts === "drawn";
  if (drawn && found.textContent.includes(" of ")) done((performance.now() - begin) / 1000);
  else setTimeout(wait, 5);
};
setTimeout(wait, 5);"""


def browser_seconds(page: Path) -> dict[str, float]:
    """Time until the page is shown, and until a filter and a search are."""
    from selenium import webdriver
    from selenium.webdriver.support.wait import WebDriverWait

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    with webdriver.Chrome(options=options, service=service) as browser:
        browser.set_script_timeout(120)
        wait = WebDriverWait(browser, 120, 0.02)
        begin = time.perf_counter()
        browser.get(page.as_uri())
        shown = (
            "return document.getElementById('detail').textContent.includes('Oracle')"
        )
        wait.until(lambda b: b.execute_script(shown))
        opened = time.perf_counter() - begin
        task = sorted(known_categories())[0]
        return {
            "opened in": opened,
            "one task in": browser.execute_async_script(FILTER, "task", task),
            "all tasks in": browser.execute_async_script(FILTER, "task", ""),
            "searched in": browser.execute_async_script(FILTER, "where", "kakaka"),
        }


def measure(folder: Path, rollouts: int, words: int, evaluation: int) -> None:
    """Print the figures of one page."""
    files = [folder / "rollouts.jsonl"]
    write_rows(files[0], rows(rollouts // GROUP_SIZE, words))
    if evaluation:
        files.append(folder / "samples.jsonl")
        write_rows(files[1], rows(evaluation, words, evaluation=True))
    page = folder / "report.html"
    begin = time.perf_counter()
    write_report(files, page)
    print(f"{rollouts:,} rollouts, {sum(f.stat().st_size for f in files) / 1e6:.1f} MB")
    print(f"{'made in':12} {time.perf_counter() - begin:6.2f} s")
    print(f"{'page':12} {page.stat().st_size / 1e6:6.1f} MB")
    for name, seconds in browser_seconds(page).items():
        print(f"{name:12} {seconds:6.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rollouts", type=int, nargs="+", default=[1000, 10_000, 100_000]
    )
    parser.add_argument(
        "--words", type=int, default=400, help="of a thought, in the median"
    )
    parser.add_argument(
        "--evaluation", type=int, default=0, help="samples beside the dumps"
    )
    parser.add_argument("--keep", type=Path, help="a folder for the files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for rollouts in options.rollouts:
            measure(folder, rollouts, options.words, options.evaluation)


if __name__ == "__main__":
    main()
