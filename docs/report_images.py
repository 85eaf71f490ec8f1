"""Take the pictures of the report in docs/images, from today's page of an invented run.

    python -m docs.report_images

The run, and the evaluations of its checkpoints, are those of tests/report/invented_run.py. It needs
Chromium and its driver.
"""

from __future__ import annotations

import base64
import io
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from reasoning_gym_environment.report.page import write_report
from tests.report.invented_run import write_invented_evaluations, write_invented_run

IMAGES = Path(__file__).with_name("images")
WIDTH = 1400
COLORS = 256
WAIT_SECONDS = 60.0

WINDOW = 1000
"""Pixels of the window's height."""

PICTURES = {
    "report": ("figures", "body", 1160),
    "report-tasks": ("tasks", "#tasks", 800),
    "report-evaluations": ("evaluations", "#evaluations", 1000),
    "report-time": ("time", "#time", 1100),
    "report-rollouts": ("rollouts", "#rollouts", 1150),
}
"""By file name: the section shown, what is taken, and the most pixels of its height."""

STILL = 5
"""Looks in a row at which nothing moves any more."""

PLACE = """
const [selector] = arguments;
document.querySelector(".sticky").style.position = "static";
const element = document.querySelector(selector);
element.scrollIntoView();
const { top, width, height } = element.getBoundingClientRect();
const charts = [...element.querySelectorAll(".chart")];
const isDrawn = (chart) =>
  chart.getBoundingClientRect().top > innerHeight || chart.querySelector("svg path");
return {
  drawn: document.documentElement.dataset.charts === "drawn" && charts.every(isDrawn),
  clip: { x: 0, y: top + scrollY, width: innerWidth, height },
};
"""


def browser() -> Any:
    """Start Chromium with the page's light colors."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--hide-scrollbars"):
        options.add_argument(argument)
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    return webdriver.Chrome(options=options, service=service)


def take(driver: Any, selector: str, most: int) -> bytes:
    """Return an element as PNG, once its charts are drawn and nothing moves."""
    size = {"width": WIDTH, "height": WINDOW, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    deadline = time.monotonic() + WAIT_SECONDS
    still = 0
    last = None
    while still < STILL:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the charts of {selector} were not drawn")
        time.sleep(0.1)
        place = driver.execute_script(PLACE, selector)
        still = still + 1 if place["drawn"] and place == last else 0
        last = place
    clip = place["clip"] | {"scale": 1, "height": min(most, place["clip"]["height"])}
    taken = driver.execute_cdp_cmd(
        "Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True}
    )
    return base64.b64decode(taken["data"])


def save(picture: bytes, path: Path) -> None:
    """Write a picture with few colors, which keeps it small."""
    from PIL import Image

    with Image.open(io.BytesIO(picture)) as image:
        few_colors = image.convert("RGB").quantize(
            COLORS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
    few_colors.save(path, optimize=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary, browser() as driver:
        folder = Path(temporary)
        write_invented_run(folder)
        write_invented_evaluations(folder)
        page = folder / "report.html"
        write_report([folder], page)
        for name, (section, selector, most) in PICTURES.items():
            driver.get(f"{page.as_uri()}#section={section}")
            save(take(driver, selector, most), IMAGES / f"{name}.png")


if __name__ == "__main__":
    main()
