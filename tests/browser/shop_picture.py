"""Takes the picture of the example shop next to Annals, from a running `scripts/demo --with-shop`,
in both languages. Each picture changes an order once more.

python -m tests.browser.shop_picture --shop http://localhost:8001 --annals http://localhost:8000 \
    docs/images/shop
"""

from __future__ import annotations

import base64
from argparse import ArgumentParser

from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.chromium import launch
from tests.browser.pictured import LOCALES, keep, speak

WIDTH, HEIGHT, GAP = 900, 820, 24
ORDER = "2026-1042"


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("stem", help="where the pictures go, without .LANGUAGE.webp")
    parser.add_argument("--shop", required=True)
    parser.add_argument("--annals", required=True)
    parser.add_argument("--theme", choices=["light", "dark"], default="light")
    given = parser.parse_args()
    with sync_playwright() as playwright:
        browser = launch(playwright)
        for language in LOCALES:
            options = given.theme, LOCALES[language]
            orders = f"{given.shop}/admin/orders/order/?q={ORDER}"
            shop = _log_in(browser, orders, "anna", *options)
            _change(shop)
            address = f"{given.annals}/admin/history/order/{ORDER}/"
            annals = _log_in(browser, address, "support", *options)
            speak(annals, language)
            keep(browser, _together(browser, [shop, annals]), given.stem, language)
        browser.close()


def _log_in(browser: Browser, address: str, login: str, theme: str, locale: str) -> Page:
    page = browser.new_page(
        viewport={"width": WIDTH, "height": HEIGHT},
        color_scheme="dark" if theme == "dark" else "light",
        timezone_id="Europe/Moscow",
        locale=locale,
    )
    page.goto(address)
    page.fill("#id_username", login)
    page.fill("#id_password", login)
    page.click("#login-form [type=submit]")
    page.wait_for_selector("#user-tools")
    return page


def _change(shop: Page) -> None:
    """Order one more of something, and save; then open the page again."""
    shop.click(f"text={ORDER}")
    quantity = shop.locator("#id_items-1-quantity")
    quantity.fill(str(int(quantity.input_value()) + 1))
    shop.click("[name=_continue]")
    shop.wait_for_selector(".messagelist")


def _together(browser: Browser, pages: list[Page]) -> bytes:
    pictures = [base64.b64encode(page.screenshot()).decode() for page in pages]
    images = "".join(f'<img src="data:image/png;base64,{each}">' for each in pictures)
    width = len(pages) * (WIDTH + GAP) + GAP
    page = browser.new_page(viewport={"width": width, "height": HEIGHT + 2 * GAP})
    style = f"margin:{GAP}px;display:flex;gap:{GAP}px;background:#8a94a6"
    page.set_content(f'<body style="{style}">{images}</body>')
    return page.screenshot()


if __name__ == "__main__":
    main()
