"""What the tests of pages do in a browser; without selenium they are skipped."""

import json
from typing import Any

import pytest

pytest.importorskip("selenium.webdriver")
from selenium.webdriver.support.wait import WebDriverWait


def until(browser: Any, condition: str) -> None:
    WebDriverWait(browser, 300, 0.05).until(
        lambda b: b.execute_script(f"return {condition}")
    )


def until_text(browser: Any, name: str, text: str) -> None:
    until(
        browser,
        f"document.getElementById('{name}').textContent.includes({json.dumps(text)})",
    )


def opened(browser: Any, page: str, fragment: str = "") -> None:
    browser.get("about:blank")
    browser.get(f"{page}#{fragment}")
    until(browser, "document.documentElement.dataset.page === 'shown'")
    until_text(browser, "found", " of ")


def open_section(browser: Any, name: str) -> None:
    """Select the link of a section."""
    link = browser.find_element("css selector", f"[data-section={name}]")
    browser.execute_script("arguments[0].click()", link)
    until(browser, f"document.getElementById('{name}').classList.contains('current')")


def fragment(browser: Any) -> str:
    return str(browser.execute_script("return location.hash"))


def set_fragment(browser: Any, fragment: str) -> None:
    """Change the address of the open page, which follows without being loaded again."""
    browser.execute_script("location.hash = arguments[0]", fragment)


def choose(browser: Any, name: str, value: str) -> None:
    """Set a control as a user does."""
    script = """const field = document.getElementById(arguments[0]);
        field.value = arguments[1];
        const event = field.type === "search" ? "input" : "change";  // "input": not left yet
        field.dispatchEvent(new Event(event, {bubbles: true}))"""
    browser.execute_script(script, name, value)


def record_copies(browser: Any) -> None:
    browser.execute_script(
        """globalThis.copies = [];
        Object.defineProperty(navigator, "clipboard",
            {value: {writeText: async (text) => { copies.push(text); }}})"""
    )


def violations(browser: Any) -> list[tuple[str, list[str]]]:
    """What axe finds in the page, each with the first elements that have it."""
    axe = pytest.importorskip("axe_core_python.selenium")
    found = axe.Axe().run(browser)["violations"]
    return [
        (each["id"], [node["html"] for node in each["nodes"]][:3]) for each in found
    ]
