"""Takes the pictures of docs/images from a running `scripts/demo`, and launches browsers for tests.

python -m tests.browser.picture page /admin/... docs/images/timeline
python -m tests.browser.picture shop docs/images/shop

The first command takes pictures of a page of Annals, one in each language. The second command needs
`scripts/demo --with-shop`. It takes pictures of the example shop beside Annals, one in each
language. Before each picture it changes an order in the shop.
"""

import base64
from argparse import ArgumentParser, Namespace
from pathlib import Path

from playwright.sync_api import Browser, Page, Playwright, sync_playwright

from tests import required_programs

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
# The locale of the browser for each language. It decides how dates are written.
LOCALES = {"en": "en-GB", "ru": "ru-RU"}
QUALITY = 0.9  # half the bytes of a PNG, with equally sharp text
# Chromium encodes WebP, so that no other program is needed.
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
    """Launch Debian's Chromium. If it is missing, skip the test, or fail in CI."""
    return playwright.chromium.launch(executable_path=required_programs.need_chromium(), args=FLAGS)


def keep_picture(browser: Browser, png: bytes, stem: str | Path, language: str) -> None:
    """Write a screenshot to a file such as docs/images/timeline.en.webp."""
    page = browser.new_page()
    encoded = page.evaluate(ENCODE, [base64.b64encode(png).decode(), QUALITY])
    page.close()
    Path(f"{stem}.{language}.webp").write_bytes(base64.b64decode(encoded))


def switch_language(page: Page, language: str) -> None:
    """Switch the language of the open page. Annals ignores the language of the browser."""
    with page.expect_navigation():
        page.click(f".language [value={language}]")
    page.wait_for_selector("html[data-ready]", state="attached")


def take_in_both_languages(page: Page, stem: str | Path, *, full_page: bool = False) -> None:
    """Take pictures of the open page in both languages. Afterwards the page is in Russian."""
    for language in LOCALES:
        switch_language(page, language)
        take_picture(page, stem, language, full_page=full_page)


def take_picture(page: Page, stem: str | Path, language: str, *, full_page: bool = False) -> None:
    """Write a picture of the page to the file `stem`.`language`.webp.

    Args:
        language: The language in which the page is shown. The function does not switch the page.
    """
    browser = page.context.browser
    assert browser is not None
    keep_picture(browser, page.screenshot(full_page=full_page), stem, language)


def open_after_login(
    browser: Browser, options: Namespace, language: str, address: str, login: str
) -> Page:
    """Open a page in a new browser context, and log in."""
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
    parser.add_argument("what", nargs="?", help="the path of the page, for example /admin/")
    parser.add_argument("file", help="the file of the picture, without .LANGUAGE.webp")
    parser.add_argument("--annals", default="http://127.0.0.1:8000")
    parser.add_argument("--shop", default="http://127.0.0.1:8001")
    parser.add_argument("--login", default="support", help="the login, which is also the password")
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
