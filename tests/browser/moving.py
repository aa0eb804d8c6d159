"""Takes the moving picture of the README from a running `scripts/demo`: a clerk finds an
application and sees who changed what.

python -m tests.browser.moving NUMBER docs/images/timeline.gif --base http://127.0.0.1:8000

NUMBER: of an application whose interest rate changed. Needs ffmpeg (Debian's package).
"""

from __future__ import annotations

import subprocess
from argparse import ArgumentParser
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Locator, Page, sync_playwright

from tests.browser.chromium import launch
from tests.browser.pictured import LOCALES, speak

WIDTH, HEIGHT = 1120, 700
FRAMES_PER_SECOND = 4
FIELDS = {"en": "Interest rate", "ru": "Процентная ставка"}
# Headless Chromium draws no pointer.
POINTER = """([x, y]) => {
    let dot = document.getElementById("pointer");
    if (!dot) {
        dot = document.createElement("div");
        dot.id = "pointer";
        for (const [name, value] of Object.entries({
            position: "fixed", zIndex: 99, width: "18px", height: "18px", margin: "-9px",
            borderRadius: "50%", background: "rgba(220, 80, 40, 0.65)", pointerEvents: "none",
        })) dot.style[name] = value;
        document.body.append(dot);
    }
    dot.style.left = x + "px";
    dot.style.top = y + "px";
}"""
# The colours of the whole picture, then the picture with them; only what changes is in a frame.
COLOURS = (
    "split[a][b];[a]palettegen=max_colors=96[c];[b][c]paletteuse=dither=none:diff_mode=rectangle"
)


class Film:
    """Screenshots of a page, one for each frame."""

    def __init__(self, page: Page, folder: Path) -> None:
        self._page, self._folder = page, folder
        self._at = (WIDTH / 2, HEIGHT / 2)
        self._count = 0

    def hold(self, seconds: float) -> None:
        """Show the page as it is for a while."""
        for _ in range(round(seconds * FRAMES_PER_SECOND)):
            self._page.evaluate(POINTER, list(self._at))
            self._page.screenshot(path=self._folder / f"{self._count:03}.png")
            self._count += 1

    def go_to(self, place: Locator) -> None:
        """Move the pointer to the middle of something."""
        place.scroll_into_view_if_needed()
        box = place.bounding_box()
        assert box is not None
        (x, y), steps = self._at, 3
        to_x, to_y = box["x"] + min(box["width"] / 2, 120), box["y"] + box["height"] / 2
        for step in range(1, steps + 1):
            self._at = (x + (to_x - x) * step / steps, y + (to_y - y) * step / steps)
            self._page.mouse.move(*self._at)
            self.hold(1 / FRAMES_PER_SECOND)

    def click(self, place: Locator) -> None:
        self.go_to(place)
        place.click()
        self._page.wait_for_selector("html[data-ready]")


def play(page: Page, film: Film, number: str, field: str) -> None:
    """Ten seconds: search, timeline, the versions that changed one field."""
    search = page.locator("input[name=q]:visible").first
    film.click(search)
    for at in range(0, len(number), 4):
        search.press_sequentially(number[at : at + 4])
        film.hold(1 / FRAMES_PER_SECOND)
    search.press("Enter")
    page.wait_for_url("**/applications/**")
    page.wait_for_selector("html[data-ready]")
    film.hold(2)
    film.go_to(page.locator("a[href*='path=']:visible").nth(3))
    film.hold(1)
    film.click(page.locator("a:visible", has_text=field).first)
    film.hold(3)


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("number", help="of an application")
    parser.add_argument("file", help="where the picture goes")
    parser.add_argument("--base", default="http://127.0.0.1:8000")
    parser.add_argument("--language", choices=LOCALES, default="en")
    given = parser.parse_args()
    with sync_playwright() as playwright, TemporaryDirectory() as folder:
        browser = launch(playwright)
        page = browser.new_page(
            base_url=given.base,
            viewport={"width": WIDTH, "height": HEIGHT},
            timezone_id="Europe/Moscow",
            locale=LOCALES[given.language],
        )
        page.goto("/admin/")
        page.fill("#id_username", "support")
        page.fill("#id_password", "support")
        page.click("#login-form [type=submit]")
        page.wait_for_selector("#user-tools")
        speak(page, given.language)
        film = Film(page, Path(folder))
        film.hold(0.5)
        play(page, film, given.number, FIELDS[given.language])
        browser.close()
        subprocess.run(
            [
                *("ffmpeg", "-y", "-loglevel", "error", "-framerate", str(FRAMES_PER_SECOND)),
                *("-i", f"{folder}/%03d.png", "-vf", f"scale=896:-1:flags=lanczos,{COLOURS}"),
                given.file,
            ],
            check=True,
        )


if __name__ == "__main__":
    main()
