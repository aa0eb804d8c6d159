"""Pictures for the documentation: a page in both languages of the screens, as WebP."""

from __future__ import annotations

import base64
from pathlib import Path

from playwright.sync_api import Browser, Page

# The locale of the browser, which writes the dates.
LOCALES = {"en": "en-GB", "ru": "ru-RU"}
QUALITY = 0.9  # half the bytes of a PNG; text stays as sharp
# Chromium writes WebP itself, so that no other program is needed.
ENCODE = """async ([png, quality]) => {
    const image = new Image();
    image.src = "data:image/png;base64," + png;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = image.width;
    canvas.height = image.height;
    canvas.getContext("2d").drawImage(image, 0, 0);
    return canvas.toDataURL("image/webp", quality).split(",")[1];
}"""


def file_of(stem: str | Path, language: str) -> Path:
    """Where the picture of a language is: docs/images/timeline.en.webp."""
    return Path(f"{stem}.{language}.webp")


def keep(browser: Browser, png: bytes, stem: str | Path, language: str) -> None:
    """Write a screenshot as the picture of this language."""
    page = browser.new_page()
    encoded = page.evaluate(ENCODE, [base64.b64encode(png).decode(), QUALITY])
    page.close()
    file_of(stem, language).write_bytes(base64.b64decode(encoded))


def speak(page: Page, language: str) -> None:
    """Switch the page that is open: a browser's own language does not count."""
    with page.expect_navigation():
        page.click(f".language [value={language}]")
    page.wait_for_selector("html[data-ready]", state="attached")


def in_both(page: Page, stem: str | Path, *, full_page: bool = False) -> None:
    """Pictures of the page that is open; it is in Russian afterwards."""
    browser = page.context.browser
    assert browser is not None
    for language in LOCALES:
        speak(page, language)
        keep(browser, page.screenshot(full_page=full_page), stem, language)


def in_russian(page: Page, stem: str | Path) -> None:
    """A picture of the page as it is, which is in Russian."""
    browser = page.context.browser
    assert browser is not None
    keep(browser, page.screenshot(), stem, "ru")
