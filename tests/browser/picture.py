"""The browser of the tests, and the pictures of docs/images, taken from a running `scripts/demo`:

python -m tests.browser.picture page /admin/... docs/images/timeline
python -m tests.browser.picture shop docs/images/shop
python -m tests.browser.picture moving NUMBER docs/images/timeline.gif

page: one of Annals, in both languages. shop: the example shop next to Annals (`scripts/demo
--with-shop`), with one more change of an order in each. moving: a clerk finds the application
NUMBER and who changed its interest rate; needs ffmpeg.
"""

import base64
import subprocess
from argparse import ArgumentParser, Namespace
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, Locator, Page, Playwright, sync_playwright

from tests import need

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
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


def launch(playwright: Playwright) -> Browser:
    """Debian's Chromium. Without it the test is skipped, or fails in CI."""
    return playwright.chromium.launch(executable_path=need.chromium(), args=FLAGS)


def keep(browser: Browser, png: bytes, stem: str | Path, language: str) -> None:
    """Write a screenshot as the picture of this language: docs/images/timeline.en.webp."""
    page = browser.new_page()
    encoded = page.evaluate(ENCODE, [base64.b64encode(png).decode(), QUALITY])
    page.close()
    Path(f"{stem}.{language}.webp").write_bytes(base64.b64decode(encoded))


def speak(page: Page, language: str) -> None:
    """Switch the page that is open: a browser's own language does not count."""
    with page.expect_navigation():
        page.click(f".language [value={language}]")
    page.wait_for_selector("html[data-ready]", state="attached")


def in_both(page: Page, stem: str | Path, *, full_page: bool = False) -> None:
    """Pictures of the page that is open; it is in Russian afterwards."""
    for language in LOCALES:
        speak(page, language)
        in_one(page, stem, language, full_page=full_page)


def in_one(page: Page, stem: str | Path, language: str, *, full_page: bool = False) -> None:
    """A picture of the page as it is."""
    browser = page.context.browser
    assert browser is not None
    keep(browser, page.screenshot(full_page=full_page), stem, language)


def opened(browser: Browser, given: Namespace, language: str, address: str, login: str) -> Page:
    """The page of this address, after its login."""
    page = browser.new_page(
        viewport={"width": given.width, "height": given.height},
        color_scheme=given.theme,
        timezone_id="Europe/Moscow",
        locale=LOCALES[language],
    )
    page.goto(address)
    page.fill("#id_username", login)
    page.fill("#id_password", login)
    page.click("#login-form [type=submit]")
    page.wait_for_selector("#user-tools")
    return page


def of_page(browser: Browser, given: Namespace) -> None:
    for language in LOCALES:
        page = opened(browser, given, language, f"{given.annals}{given.what}", given.login)
        speak(page, language)
        in_one(page, given.file, language)


GAP = 24
ORDER = "2026-1042"


def of_shop(browser: Browser, given: Namespace) -> None:
    for language in LOCALES:
        orders = f"{given.shop}/admin/orders/order/?q={ORDER}"
        shop = opened(browser, given, language, orders, "anna")
        shop.click(f"text={ORDER}")
        quantity = shop.locator("#id_items-1-quantity")
        quantity.fill(str(int(quantity.input_value()) + 1))
        shop.click("[name=_continue]")
        shop.wait_for_selector(".messagelist")
        address = f"{given.annals}/admin/history/order/{ORDER}/"
        annals = opened(browser, given, language, address, "support")
        speak(annals, language)
        both = [base64.b64encode(page.screenshot()).decode() for page in (shop, annals)]
        images = "".join(f'<img src="data:image/png;base64,{each}">' for each in both)
        width, height = 2 * (given.width + GAP) + GAP, given.height + 2 * GAP
        page = browser.new_page(viewport={"width": width, "height": height})
        style = f"margin:{GAP}px;display:flex;gap:{GAP}px;background:#8a94a6"
        page.set_content(f'<body style="{style}">{images}</body>')
        keep(browser, page.screenshot(), given.file, language)


FRAMES_PER_SECOND = 4
# Headless Chromium draws no pointer.
POINTER = """([x, y]) => {
    let dot = document.getElementById("pointer");
    if (!dot) {
        dot = document.createElement("div");
        dot.id = "pointer";
        dot.style.cssText = "position: fixed; z-index: 99; width: 18px; height: 18px; margin: -9px;"
            + "border-radius: 50%; background: rgba(220, 80, 40, 0.65); pointer-events: none";
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
        self._at = (500.0, 300.0)
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


def moving(browser: Browser, given: Namespace) -> None:
    """Ten seconds: search, timeline, the versions that changed one field."""
    with TemporaryDirectory() as folder:
        page = opened(browser, given, "en", f"{given.annals}/admin/", "support")
        speak(page, "en")
        film = Film(page, Path(folder))
        film.hold(0.5)
        search = page.locator("input[name=q]:visible").first
        film.click(search)
        for at in range(0, len(given.what), 4):
            search.press_sequentially(given.what[at : at + 4])
            film.hold(1 / FRAMES_PER_SECOND)
        search.press("Enter")
        page.wait_for_url("**/applications/**")
        page.wait_for_selector("html[data-ready]")
        film.hold(2)
        film.go_to(page.locator("a[href*='path=']:visible").nth(3))
        film.hold(1)
        film.click(page.locator("a:visible", has_text="Interest rate").first)
        film.hold(3)
        words = ["ffmpeg", "-y", "-loglevel", "error", "-framerate", str(FRAMES_PER_SECOND)]
        words += ["-i", f"{folder}/%03d.png", "-vf", f"scale=896:-1:flags=lanczos,{COLOURS}"]
        subprocess.run([*words, given.file], check=True)


KINDS = {"page": (of_page, 1280, 860), "shop": (of_shop, 900, 820), "moving": (moving, 1120, 700)}


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("what", nargs="?", help="the page, from /admin/ on; or NUMBER")
    parser.add_argument("file", help="where the picture goes; without .LANGUAGE.webp")
    parser.add_argument("--annals", default="http://127.0.0.1:8000")
    parser.add_argument("--shop", default="http://127.0.0.1:8001")
    parser.add_argument("--login", default="support", help="its password is the same")
    parser.add_argument("--height", type=int)
    parser.add_argument("--theme", choices=["light", "dark"], default="light")
    given = parser.parse_args()
    take, given.width, height = KINDS[given.kind]
    given.height = given.height or height
    with sync_playwright() as playwright:
        browser = launch(playwright)
        take(browser, given)
        browser.close()


if __name__ == "__main__":
    main()
