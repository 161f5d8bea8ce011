"""Makes the pictures of `docs/report.md`: `python -m tests.report.screenshots REPORT.html PART PICTURE.png [CHOSEN]`.

Each picture is a part of a report as Chromium shows it; `CHOSEN` is an instruction that is selected, or `dark`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.report.browser import Browser, browser

SETTLED = 0.5
"""Seconds until everything is drawn."""


def main(report: str, part: str, picture: str, *chosen: str) -> None:
    """Writes one picture."""
    with tempfile.TemporaryDirectory() as profile, browser(Path(profile)) as chromium:
        chromium.driver.set_window_size(1440, 900 + _frame(chromium))
        chromium.open(Path(report).resolve())
        chromium.run("frame.show({ part: arguments[0] })", part)
        for each in chosen:
            if each == "dark":
                chromium.run(
                    "document.documentElement.dataset.theme = 'dark', frame.show({ part: frame.part })"
                )
            else:
                chromium.run("selection.select({ instruction: arguments[0] })", each)
        time.sleep(SETTLED)
        chromium.driver.save_screenshot(picture)


def _frame(chromium: Browser) -> int:
    """Pixels of the window that are not the page."""
    return chromium.run("outerHeight - innerHeight")


if __name__ == "__main__":
    main(*sys.argv[1:])
