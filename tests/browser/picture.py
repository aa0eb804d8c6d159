"""Takes a picture in docs/images from a running server, in both languages:
timeline.en.webp and timeline.ru.webp.

python -m tests.browser.picture --base http://127.0.0.1:8000 /admin/... docs/images/timeline
"""

from __future__ import annotations

from argparse import ArgumentParser

from playwright.sync_api import sync_playwright

from tests.browser.chromium import launch
from tests.browser.pictured import LOCALES, keep, speak


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("path", help="the page, from /admin/ on")
    parser.add_argument("stem", help="where the pictures go, without .LANGUAGE.webp")
    parser.add_argument("--base", default="http://127.0.0.1:8000")
    parser.add_argument("--login", default="support")
    parser.add_argument("--password", default="support")
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=860)
    parser.add_argument("--theme", choices=["light", "dark"], default="light")
    given = parser.parse_args()
    with sync_playwright() as playwright:
        browser = launch(playwright)
        for language, locale in LOCALES.items():
            page = browser.new_page(
                base_url=given.base,
                viewport={"width": given.width, "height": given.height},
                color_scheme=given.theme,
                timezone_id="Europe/Moscow",
                locale=locale,
            )
            page.goto(given.path)
            page.fill("#id_username", given.login)
            page.fill("#id_password", given.password)
            page.click("#login-form [type=submit]")
            page.wait_for_selector("#user-tools")
            speak(page, language)
            keep(browser, page.screenshot(), given.stem, language)
        browser.close()


if __name__ == "__main__":
    main()
