"""axe-core finds no violations of accessibility rules on the screens."""

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import BrowserFaults, Open
from tests.browser.test_screens import R1, SCREENS, W1

pytestmark = [pytest.mark.browser, pytest.mark.django_db]

RUN = """async ([options, kept]) => {
    document.querySelectorAll(`.version:nth-child(n+${kept})`).forEach((one) => one.remove());
    document.getAnimations().forEach((one) => one.finish());  // links fade to a new theme
    return (await axe.run(document, options)).violations
        .map((each) => `${each.id}: ${each.nodes.map((one) => one.html).slice(0, 3)}`);
}"""
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
ALL = {"runOnly": {"type": "tag", "values": TAGS}}
CONTRAST = "color-contrast"  # takes half of the time, and is the only rule that a theme can break
KEPT = 12  # how many versions of a page are checked; all versions look alike
OPEN = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
PAGES = {
    "support": [
        *SCREENS,
        "/admin/at/A1/?time=today",
        f"{W1}versions/3/?as=json",
        f"{W1}?path=nothing",
        f"{W1}field/?path=/list",
        "/admin/nothing/",
        f"{R1}versions/9/",
        "/admin/applications/unseen/",
        "/admin/completeness/",
        "/admin/changes/",
        "/admin/changes/?author=m.ivanov",
        "/admin/person/m.ivanov/",
    ],
    "privacy": ["/admin/journal/", f"{R1}versions/0/", f"{R1}versions/0/unmask/?path=/passport"],
    "admin": [
        "/admin/auth/user/",
        "/admin/history/person/",
        "/admin/history/person/add/",
        "/admin/history/fieldlabel/",
        "/admin/gaps/",
    ],
}


def find_violations(page: Page, axe_source: str, language: str = "ru") -> list[str]:
    """Return the accessibility violations that axe-core finds on the page.

    A Russian page is checked in the light and the dark theme. An English page is checked in one
    theme and without the contrast rule, because English and Russian pages have equal colours.
    """
    page.evaluate(OPEN)
    page.evaluate(axe_source)
    if language != "ru":
        rules = {CONTRAST: {"enabled": False}}
        return list(page.evaluate(RUN, [{**ALL, "rules": rules}, KEPT]))
    page.emulate_media(color_scheme="light")
    violations = page.evaluate(RUN, [ALL, KEPT])
    page.emulate_media(color_scheme="dark")
    return [*violations, *page.evaluate(RUN, [{"runOnly": [CONTRAST]}, KEPT])]


@pytest.mark.parametrize("language", ["ru", "en"])
@pytest.mark.parametrize("login", PAGES)
def test_axe_finds_no_violations_on_any_page(
    visit: Open, axe_source: str, browser_faults: BrowserFaults, login: str, language: str
) -> None:
    page = visit("/admin/", login=login)
    page.context.add_cookies([{"name": "django_language", "value": language, "url": page.url}])
    faults = {}
    for address in PAGES[login]:
        page.goto(address)
        if violations := find_violations(page, axe_source, language):
            faults[address] = violations
    browser_faults.faults.clear()  # some of the pages answer 404 on purpose
    assert faults == {}


def test_axe_finds_no_violations_before_login(visit: Open, axe_source: str) -> None:
    assert find_violations(visit("/admin/", login=""), axe_source) == []
