"""axe-core finds nothing on any page, in both languages and themes."""

from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests import npm
from tests.browser.conftest import Open, Seen
from tests.browser.test_screens import R1, SCREENS, W1

pytestmark = [pytest.mark.browser, pytest.mark.django_db]

RUN = """async (tags) => (await axe.run(document, { runOnly: { type: "tag", values: tags } }))
    .violations.map((each) => `${each.id}: ${each.nodes.map((one) => one.html).slice(0, 3)}`)"""
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
OPEN = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
PAGES = {
    "support": [
        *SCREENS,
        f"{W1}versions/3/?as=json",
        f"{W1}?path=nothing",
        f"{W1}field/?path=/list",
        "/admin/history/product-instance/A1/field/?path=/rate",
        "/admin/client/?q=none",
        "/admin/nothing/",
        f"{R1}versions/9/",
        "/admin/applications/unseen/",
        "/admin/completeness/",
    ],
    "privacy": ["/admin/journal/", f"{R1}versions/0/"],
    "admin": [
        *("/admin/auth/user/", "/admin/history/person/", "/admin/history/person/add/"),
        *("/admin/history/fieldlabel/", "/admin/gaps/"),
    ],
}


@pytest.fixture(scope="module")
def axe() -> str:
    folder = npm.installed(Path(__file__).parent / "axe", "axe-core")
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()


def found(page: Page, axe: str) -> list[str]:
    page.evaluate(OPEN)
    page.evaluate(axe)
    violations: list[str] = page.evaluate(RUN, TAGS)
    return violations


@pytest.mark.parametrize(("language", "theme"), [("ru", "light"), ("en", "dark")])
@pytest.mark.parametrize("login", PAGES)
def test_axe_finds_nothing(
    visit: Open, axe: str, seen: Seen, login: str, language: str, theme: str
) -> None:
    page = visit("/admin/", login=login, color_scheme=theme)
    page.context.add_cookies([{"name": "django_language", "value": language, "url": page.url}])
    faults = {}
    for address in PAGES[login]:
        page.goto(address)
        if violations := found(page, axe):
            faults[address] = violations
    seen.faults.clear()  # a page that is not found is a fault elsewhere
    assert faults == {}


def test_axe_finds_nothing_before_the_login(visit: Open, axe: str) -> None:
    assert found(visit("/admin/", login=""), axe) == []
