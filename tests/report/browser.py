"""A headless Chromium that shows a report, and what a test asks of it."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BROWSERS, DRIVERS = ("chromium", "chromium-browser", "google-chrome"), ("chromedriver",)
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1440,900",
)


def missing() -> str | None:
    """What of a browser is not here; None if all is."""
    for names in (BROWSERS, DRIVERS):
        if not any(map(shutil.which, names)):
            return f"{names[0]} is not installed"
    return None


class Browser:
    """One page at a time."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, page: Path) -> None:
        """Shows a file, as a reader does who opens it."""
        self.driver.get("about:blank")
        self.driver.get(page.as_uri())

    def settle(self) -> None:
        """Waits until what was asked for is drawn: lists learn their size in the frame after they appear."""
        self.driver.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()))"
        )

    def run(self, script: str, *arguments: object) -> Any:
        """The value of a JavaScript expression; `arguments` are in `arguments`."""
        self.settle()
        return self.driver.execute_script(f"return {script}", *arguments)

    def text(self, selector: str) -> str:
        """The text of the first element that a selector finds."""
        return self.run("document.querySelector(arguments[0]).innerText", selector)

    def count(self, selector: str) -> int:
        """How many elements a selector finds."""
        return self.run("document.querySelectorAll(arguments[0]).length", selector)

    def find(self, selector: str) -> Any:
        """The first element that a selector finds."""
        self.settle()
        return self.driver.find_element("css selector", selector)

    def row(self, name: str) -> Any:
        """The row of a list in which a name stands."""
        self.settle()
        return self.driver.find_element("xpath", f"//*[@role='option'][.//*[@title='{name}']]")

    def hover(self, element: Any) -> None:
        """Moves the pointer over an element."""
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).move_to_element(element).perform()

    def press(self, *keys: str) -> None:
        """Presses keys, by their names in `selenium.webdriver.Keys` or as they are."""
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.keys import Keys

        ActionChains(self.driver).send_keys(*(getattr(Keys, key, key) for key in keys)).perform()

    @property
    def focused(self) -> str:
        """The id, else the label of the element that has the focus."""
        return self.run("document.activeElement.id || document.activeElement.getAttribute('aria-label')")

    def errors(self) -> list[str]:
        """What the console of the browser has been told, since it was asked last."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@contextmanager
def browser(profile: Path) -> Generator[Browser]:
    """A browser with a new profile in a folder."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = next(filter(None, map(shutil.which, BROWSERS)))
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(next(filter(None, map(shutil.which, DRIVERS))))
    driver = webdriver.Chrome(options=options, service=service)
    try:
        yield Browser(driver)
    finally:
        driver.quit()
