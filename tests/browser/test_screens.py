"""The screens in a browser: a clerk logs in, searches, reads, pages and filters."""

from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import LONG, Open, log_in
from tests.db.store import T0

pytestmark = [pytest.mark.browser, pytest.mark.django_db]

A1 = "/admin/history/product-instance/A1/"
WHOLE = "/admin/applications/A1/"
W1 = "/admin/history/product-instance/W1/"
R1 = "/admin/history/participant-role/R1/"
NEWEST = T0 + timedelta(hours=119, microseconds=510186)
RUSSIAN_J = (
    "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'о', bubbles: true}))"
)
# JavaScript for the right edge of each table cell.
REACH = "[...document.querySelectorAll('.gap-list td')].map(c => c.getBoundingClientRect().right)"
UNFOLD = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
SCREENS = [
    "/admin/",
    "/admin/history/?q=A1+W1+R1+nothing",
    A1,
    WHOLE,
    "/admin/at/A1/",
    W1,
    "/admin/applications/W1/",
    f"{A1}?author=m.ivanov",
    f"{W1}versions/3/",
    f"{W1}state/",
    f"{W1}compare/?from=0&to=3",
    R1,
    f"{R1}state/",
    f"{A1}field/?path=/rate",
    "/admin/client/?q=none",
    "/admin/changes/?clientId=top-crm",
    f"/admin/changes/?author={LONG[:64]}",
    "/admin/person/m.ivanov/",
]


def has_no_overflow(page: Page) -> bool:
    """Return whether no element reaches beyond the right edge of the window."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


def test_search_opens_timeline_of_application(visit: Open) -> None:
    page = visit("/admin/", login="")
    log_in(page, "support")
    expect(page.locator("[data-search]")).to_be_focused()
    page.keyboard.type("A1")
    page.keyboard.press("Enter")
    expect(page).to_have_url(page.url.split("/admin/")[0] + WHOLE)
    newest = page.locator(".version").first
    expect(newest).to_contain_text("version 119")
    expect(newest).to_contain_text("Иванов Михаил")
    expect(newest).to_contain_text("118.5")
    expect(newest).to_contain_text("119.5")
    expect(page.locator(".version").nth(1)).to_contain_text("unknown login")
    expect(page.locator(".subject h1")).to_have_text("Ипотека 7708-2026-1")


@pytest.mark.parametrize(
    ("zone", "offset"), [("Europe/Moscow", "UTC+03:00"), ("Asia/Vladivostok", "UTC+10:00")]
)
def test_times_are_in_browser_time_zone(visit: Open, zone: str, offset: str) -> None:
    page = visit(A1, timezone_id=zone)
    local = NEWEST.astimezone(ZoneInfo(zone))
    time = page.locator(".version-time time").first
    expect(time).to_have_text(f"{local:%H:%M:%S}")
    title = time.get_attribute("title") or ""
    assert f"{local:%H:%M:%S}.510186 {offset} ({zone})" in title
    assert f"{NEWEST:%Y-%m-%d %H:%M:%S}.510186 UTC" in title
    expect(page.locator(".day h2").first).to_contain_text(f"{local.day} ")
    expect(page.locator("[data-zone]").first).to_contain_text(zone)


def test_pages_use_the_chosen_time_zone(visit: Open) -> None:
    page = visit(A1, timezone_id="Asia/Vladivostok")
    page.click(".zones [value=moscow]")
    local = NEWEST.astimezone(ZoneInfo("Europe/Moscow"))
    expect(page.locator(".version-time time").first).to_have_text(f"{local:%H:%M:%S}")
    expect(page.locator("[data-zone]").first).to_contain_text("Europe/Moscow")
    page.click(".zones [value=mine]")
    expect(page.locator("[data-zone]").first).to_contain_text("Asia/Vladivostok")


def test_click_on_bar_of_chart_shows_versions_of_its_day(visit: Open) -> None:
    page = visit(A1)
    expect(page.locator(".bars a")).to_have_count(6)
    page.locator(".bars a").nth(2).click()
    day = T0 + timedelta(days=2)
    expect(page.locator(".chips b").first).to_have_text(f"{day:%Y-%m-%d} 00:00 UTC+03:00")
    expect(page.locator(".version").first).to_be_visible()


def test_moments_in_snapshot_are_shown_in_browser_time_zone(visit: Open) -> None:
    page = visit(f"{A1}?type=CREATE", timezone_id="Asia/Vladivostok")
    page.locator(".version .more summary").first.click()
    expect(page.locator(".snapshot")).to_contain_text("2026-02-01, 08:30:00")


def test_keyboard_shortcuts_focus_and_unfold_versions_and_turn_pages(visit: Open) -> None:
    page = visit(A1)
    page.keyboard.press("j")
    expect(page.locator(".version-number").first).to_be_focused()
    page.evaluate(RUSSIAN_J)
    expect(page.locator(".version-number").nth(1)).to_be_focused()
    page.keyboard.press("k")
    expect(page.locator(".version-number").first).to_be_focused()
    folded = page.locator(".version details").first
    assert folded.get_attribute("open") is None
    page.keyboard.press("o")
    expect(folded).to_have_attribute("open", "")
    page.keyboard.press("/")
    expect(page.locator("[data-search]")).to_be_focused()
    page.keyboard.type("j/")
    expect(page.locator("[data-search]")).to_have_value("j/")
    page.fill("[data-search]", "")
    page.keyboard.press("?")
    expect(page.locator(".keys")).to_be_in_viewport()
    page.keyboard.press("[")
    page.keyboard.press("Escape")
    page.locator("[data-search]").blur()
    page.keyboard.press("[")
    expect(page.locator(".version-number").first).to_contain_text("69")
    page.wait_for_load_state()  # before its script runs, the page ignores keys
    page.keyboard.press("p")
    expect(page.locator(".version-number").first).to_contain_text("119")
    page.goto(f"{A1}versions/7/")
    page.keyboard.press("[")
    expect(page.locator(".version-number")).to_contain_text("6")
    page.wait_for_load_state()
    page.keyboard.press("]")
    expect(page.locator(".version-number")).to_contain_text("7")


def test_tab_key_reaches_every_control(visit: Open) -> None:
    page = visit(A1)
    page.keyboard.press("Tab")
    expect(page.locator(".skip-to-content-link")).to_be_focused()
    reached = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.textContent.trim()"))
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none"
    assert {"Find", "Compare", "Unfold all", "snapshot"} <= reached


def test_moments_entered_in_filter_are_in_browser_time_zone(visit: Open) -> None:
    page = visit(A1, timezone_id="Asia/Vladivostok")
    page.locator(".filter summary").click()
    local = (T0 + timedelta(hours=118)).astimezone(ZoneInfo("Asia/Vladivostok"))
    page.fill("#id_from", f"{local:%Y-%m-%dT%H:%M}")
    page.click(".filter-actions button")
    numbers = page.locator(".version-number")
    expect(numbers).to_have_count(2)
    expect(numbers.nth(1)).to_contain_text("118")
    expect(page.locator("#id_from")).to_have_value(f"{local:%Y-%m-%dT%H:%M}")


def test_buttons_of_timeline_fold_and_compare_versions_and_copy_texts(visit: Open) -> None:
    page = visit(A1)
    page.click("[data-fold]")
    expect(page.locator(".version details:not([open])")).to_have_count(0)
    page.click("[data-fold]")
    expect(page.locator(".version details[open]")).to_have_count(0)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click(".subject [data-copy]")
    expect(page.locator(".subject [data-copy]")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "A1"
    page.click(".take summary")
    page.click(".take [data-copy-from]")
    expect(page.locator(".take [data-copy-from]")).to_have_text("Copied")
    note = page.evaluate("navigator.clipboard.readText()")
    assert "“Interest rate” changed from 118.5 % to 119.5 %" in note.replace(
        "\N{NO-BREAK SPACE}", " "
    )
    page.fill("#compare-from", "3")
    page.click(".compare button")
    expect(page.locator(".comparison")).to_contain_text("119.5")


BOXES = (
    "[...document.querySelectorAll('.toolbar, .toolbar *:not(.menu, .menu *)')].map(e => {"
    " const box = e.getBoundingClientRect(); return [box.x, box.y, box.width, box.height] })"
)


@pytest.mark.parametrize("width", [390, 1280])
def test_export_menu_opens_without_moving_the_page_and_closes_on_click_or_escape(
    visit: Open, width: int
) -> None:
    page = visit(A1, viewport={"width": width, "height": 900})
    menu = page.locator(".take .menu")
    before = page.evaluate(BOXES)
    page.click(".take summary")
    expect(menu).to_be_in_viewport(ratio=1)
    assert page.evaluate(BOXES) == before
    assert has_no_overflow(page)
    page.locator(".versions").first.click(position={"x": 5, "y": 400})
    expect(menu).to_be_hidden()
    page.click(".take summary")
    page.keyboard.press("Escape")
    expect(menu).to_be_hidden()


@pytest.mark.parametrize("address, field", [("/admin/at/A1/", "#id_time"), (A1, "#id_from")])
def test_calendar_fills_moment_field(visit: Open, address: str, field: str) -> None:
    page = visit(address)
    page.evaluate(UNFOLD)
    place = page.locator(".moment-field", has=page.locator(field))
    page.fill(field, "01.11.2026 07:05")
    place.locator(".pick").click()
    picker = place.locator(".picker")
    expect(picker).to_have_value("2026-11-01T07:05")
    picker.evaluate("e => { e.value = '2026-11-12T09:30'; e.dispatchEvent(new Event('input')) }")
    expect(page.locator(field)).to_have_value("12.11.2026 09:30")
    picker.evaluate("e => { e.value = ''; e.dispatchEvent(new Event('input')) }")
    expect(page.locator(field)).to_have_value("")
    assert has_no_overflow(page)


def test_list_in_narrow_window_shows_column_name_in_each_cell(visit: Open) -> None:
    page = visit(
        "/admin/history/fieldlabel/", login="admin", viewport={"width": 390, "height": 900}
    )
    cell = page.locator("#result_list .field-english").first
    label = cell.evaluate("e => getComputedStyle(e, '::before').content")
    assert label == f'"{page.locator("#result_list .column-english .text").text_content()}: "'
    assert has_no_overflow(page)


# 640 pixels are the width of a window of 1280 pixels at 200% zoom.
@pytest.mark.parametrize("width", [390, 640, 1280])
def test_pages_fit_the_window(visit: Open, width: int) -> None:
    page = visit("/admin/", viewport={"width": width, "height": 900})
    for address in SCREENS:
        page.goto(address)
        assert has_no_overflow(page), address
        page.evaluate(UNFOLD)
        assert has_no_overflow(page), address


def test_cells_of_version_gap_page_stay_inside_the_page(visit: Open) -> None:
    page = visit("/admin/gaps/", login="ops", viewport={"width": 400, "height": 800})
    reach = page.evaluate(REACH)
    assert len(reach) == 5
    assert max(reach) <= 400
    assert has_no_overflow(page)
    assert "Before a version of" in page.locator(".gap-list td").nth(2).evaluate(
        "c => getComputedStyle(c, '::before').content"
    )


def test_theme_and_language_can_be_switched(visit: Open) -> None:
    page = visit(A1, login="auditor")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click(".theme-toggle")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    page.click(".language [value=en]")
    expect(page.locator(".version-number").first).to_have_text("version 119")
    expect(page.locator("html")).to_have_attribute("lang", "en")
    local = NEWEST.astimezone(ZoneInfo("Europe/Moscow"))
    time = page.locator(".version-time time").first
    expect(time).to_have_text(f"{local:%H:%M:%S}")
    assert f"{local:%H:%M:%S}.510186 UTC+03:00" in (time.get_attribute("title") or "")


def test_timeline_can_be_read_and_paged_without_javascript(visit: Open) -> None:
    page = visit(A1, java_script_enabled=False)
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        boxes = [page.locator(f".version-{item}").first.bounding_box() for item in ("time", "body")]
        assert boxes[0]
        assert boxes[1]
        assert boxes[0]["y"] + boxes[0]["height"] <= boxes[1]["y"]  # no overlap
    page.click(".zones [value=moscow]")
    local = NEWEST.astimezone(ZoneInfo("Europe/Moscow"))
    time = page.locator(".version-time time").first
    expect(time).to_have_text(f"{local:%Y-%m-%d, %H:%M:%S}")
    assert f"{local:%H:%M:%S}.510186+03:00" in (time.get_attribute("title") or "")
    page.locator("a[rel=next]").last.click()
    expect(page.locator(".version-number").first).to_contain_text("69")


def test_heading_stays_visible_when_scrolling(visit: Open) -> None:
    for width in (390, 1280):
        page = visit(A1, viewport={"width": width, "height": 700})
        page.evaluate("window.scrollTo(0, 3000)")
        expect(page.locator(".subject h1")).to_be_in_viewport()
        page.evaluate("location.hash = 'v111'")
        top = page.evaluate("document.querySelector('.version:target').getBoundingClientRect().top")
        head = page.evaluate(
            "document.querySelector('.subject-line').getBoundingClientRect().bottom"
        )
        assert top >= head


def test_printed_page_is_light_and_has_only_the_history(visit: Open) -> None:
    page = visit(A1, color_scheme="dark")
    page.click(".theme-toggle")
    page.click(".theme-toggle")
    page.emulate_media(media="print")
    expect(page.locator(".version").first).to_be_visible()
    for part in ("#header", ".toolbar", ".tools >> nth=0", ".tabs", ".keys"):
        expect(page.locator(part)).to_be_hidden()
    paper = page.locator(".paper")
    expect(paper).to_contain_text(f"Address: {page.url}")
    expect(paper).to_contain_text("Filter: none")
    expect(paper).to_contain_text("Time zone: Europe/Moscow")
    expect(paper).to_contain_text("Older versions follow on the next page.")
    ink = page.evaluate("getComputedStyle(document.querySelector('.who b')).color")
    assert ink == "rgb(0, 0, 0)"


def test_narrow_window_shows_whole_title_and_all_tabs(visit: Open) -> None:
    page = visit(WHOLE, viewport={"width": 380, "height": 800})
    title = page.locator(".subject h1")
    title.evaluate("h1 => { h1.textContent = 'Ипотека на новостройку 2305-2026-1234567' }")
    assert title.evaluate("h1 => h1.scrollWidth <= h1.clientWidth")
    assert page.evaluate(
        "(() => { const t = document.querySelector('.tabs');"
        " return t.scrollWidth <= t.clientWidth })()"
    )
    assert has_no_overflow(page)


def test_privacy_officer_unmasks_one_value(visit: Open) -> None:
    page = visit(R1, login="privacy", color_scheme="dark")
    masked = page.locator(".version").first.locator(".masked")
    expect(masked).to_have_count(2)
    assert masked.first.inner_text() != masked.last.inner_text()
    clerk = visit(R1)
    expect(clerk.locator(".masks")).to_contain_text("send the privacy officer")
    expect(clerk.locator("a.masked")).to_have_count(0)
    clerk.goto(f"{R1}?type=CREATE")
    expect(clerk.locator(".masks")).to_be_hidden()  # the masked values are folded, too
    clerk.click(".version summary")
    expect(clerk.locator(".masks")).to_be_visible()
    # The first masked value belongs to the previous version.
    assert masked.first.get_attribute("href") is None
    masked.last.click()
    expect(page.locator("#id_reason")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".unmasked")).to_have_count(0)
    page.keyboard.type("Complaint of a client")
    page.keyboard.press("Enter")
    expect(page.locator(".unmasked")).to_contain_text("998877")
    page.reload()  # unmasks again, which is recorded as another access
    expect(page.locator(".unmasked")).to_contain_text("998877")
    page.click("button[name=language][value=en]")
    expect(page.locator("#id_reason")).to_be_visible()
    expect(page.locator("body")).not_to_contain_text("998877")


def test_api_documentation_page_lists_every_call(visit: Open) -> None:
    page = visit("/admin/")  # log in here, because /api/docs/ has no login form
    page.goto("/api/docs/")
    expect(page.locator(".opblock")).to_have_count(13)


def test_newer_versions_are_announced_without_changing_the_shown_versions(visit: Open) -> None:
    page = visit("/admin/")
    page.clock.install()
    page.goto(WHOLE)
    page.route("**/newer/*", lambda route: route.fulfill(json={"text": "2 newer versions: show"}))
    before = page.locator(".version").first.inner_text()
    page.clock.fast_forward(31_000)
    link = page.locator(".newer a")
    expect(link).to_have_text("2 newer versions: show")
    assert page.locator(".version").first.inner_text() == before
    link.click()
    expect(page.locator(".newer")).to_be_empty()
