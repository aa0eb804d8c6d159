"""The browser of the tests, and the pictures of docs/images, taken from a running `scripts/demo`:

python -m tests.browser.picture page /admin/... docs/images/timeline
python -m tests.browser.picture shop docs/images/shop

page: one of Annals, in both languages. shop: the example shop next to Annals (`scripts/demo
--with-shop`), with one more change of an order in each.
"""

import base64
from argparse import ArgumentParser, Namespace
from pathlib import Path

from playwright.sync_api import Browser, Page, Playwright, sync_playwright

from tests import required_programs

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


def launch_browser(playwright: Playwright) -> Browser:
    """Debian's Chromium. Without it the test is skipped, or fails in CI."""
    return playwright.chromium.launch(executable_path=required_programs.need_chromium(), args=FLAGS)


def keep_picture(browser: Browser, png: bytes, stem: str | Path, language: str) -> None:
    """Write a screenshot as the picture of this language: docs/images/timeline.en.webp."""
    page = browser.new_page()
    encoded = page.evaluate(ENCODE, [base64.b64encode(png).decode(), QUALITY])
    page.close()
    Path(f"{stem}.{language}.webp").write_bytes(base64.b64decode(encoded))


def switch_language(page: Page, language: str) -> None:
    """Switch the page that is open: a browser's own language does not count."""
    with page.expect_navigation():
        page.click(f".language [value={language}]")
    page.wait_for_selector("html[data-ready]", state="attached")


def take_in_both_languages(page: Page, stem: str | Path, *, full_page: bool = False) -> None:
    """Pictures of the page that is open; it is in Russian afterwards."""
    for language in LOCALES:
        switch_language(page, language)
        take_picture(page, stem, language, full_page=full_page)


def take_picture(page: Page, stem: str | Path, language: str, *, full_page: bool = False) -> None:
    """A picture of the page as it is."""
    browser = page.context.browser
    assert browser is not None
    keep_picture(browser, page.screenshot(full_page=full_page), stem, language)


def open_after_login(
    browser: Browser, options: Namespace, language: str, address: str, login: str
) -> Page:
    """The page of this address, after its login."""
    page = browser.new_page(
        viewport={"width": options.width, "height": options.height},
        color_scheme=options.theme,
        timezone_id="Europe/Moscow",
        locale=LOCALES[language],
    )
    page.goto(address)
    page.fill("#id_username", login)
    page.fill("#id_password", login)
    page.click("#login-form [type=submit]")
    page.wait_for_selector("#user-tools")
    return page


def take_pictures_of_page(browser: Browser, options: Namespace) -> None:
    for language in LOCALES:
        page = open_after_login(
            browser, options, language, f"{options.annals}{options.what}", options.login
        )
        switch_language(page, language)
        take_picture(page, options.file, language)


GAP = 24
ORDER = "2026-1042"


def take_pictures_of_shop(browser: Browser, options: Namespace) -> None:
    for language in LOCALES:
        orders = f"{options.shop}/admin/orders/order/?q={ORDER}"
        shop = open_after_login(browser, options, language, orders, "anna")
        shop.click(f"text={ORDER}")
        quantity = shop.locator("#id_items-1-quantity")
        quantity.fill(str(int(quantity.input_value()) + 1))
        shop.click("[name=_continue]")
        shop.wait_for_selector(".messagelist")
        address = f"{options.annals}/admin/history/order/{ORDER}/"
        annals = open_after_login(browser, options, language, address, "support")
        switch_language(annals, language)
        pair = [base64.b64encode(page.screenshot()).decode() for page in (shop, annals)]
        images = "".join(f'<img src="data:image/png;base64,{item}">' for item in pair)
        width, height = 2 * (options.width + GAP) + GAP, options.height + 2 * GAP
        page = browser.new_page(viewport={"width": width, "height": height})
        style = f"margin:{GAP}px;display:flex;gap:{GAP}px;background:#8a94a6"
        page.set_content(f'<body style="{style}">{images}</body>')
        keep_picture(browser, page.screenshot(), options.file, language)


KINDS = {"page": (take_pictures_of_page, 1280, 860), "shop": (take_pictures_of_shop, 900, 820)}


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("what", nargs="?", help="the page, from /admin/ on")
    parser.add_argument("file", help="where the picture goes; without .LANGUAGE.webp")
    parser.add_argument("--annals", default="http://127.0.0.1:8000")
    parser.add_argument("--shop", default="http://127.0.0.1:8001")
    parser.add_argument("--login", default="support", help="its password is the same")
    parser.add_argument("--height", type=int)
    parser.add_argument("--theme", choices=["light", "dark"], default="light")
    arguments = parser.parse_args()
    take, arguments.width, height = KINDS[arguments.kind]
    arguments.height = arguments.height or height
    with sync_playwright() as playwright:
        browser = launch_browser(playwright)
        take(browser, arguments)
        browser.close()


if __name__ == "__main__":
    main()
