"""The API and the screens accept every id in an address, and every moment in a request."""

import html
import re
from urllib.parse import quote, urljoin

import pytest
from django.test import Client

from history.admin.components import links
from history.kinds.entities import BY_NAME, ROOT
from tests.db.calls import read_data
from tests.db.screens import A1
from tests.db.store import Store, minute

CHILD = BY_NAME["participant-role"]
IDS = [
    "a/at",
    "a/compare",
    "a/fields",
    "a/blame",
    "a/state",
    "a/versions/3",
    "a/versions/at",
    "a/history",
    "a\nb",
    "a\r\n/at",
    "/",
    "a/",
    "/a",
    "100%",
    "a%2Fat",
    "a?b#c",
    "Ключ 1",
    ".",
    "..",
    "./at",
    "a/.",
]


def normalize_address(address: str) -> str:
    """Return the address that a browser requests.

    A browser removes the segments `.` and `..`, even if they are percent-encoded.
    """
    plain = re.sub("%2e", ".", address, flags=re.IGNORECASE)
    return urljoin("http://annals/here", plain).removeprefix("http://annals")


def quote_id(id: str) -> str:
    """Quote an id for an address of the API by the rules of docs/api.md."""
    dots = {".": "." * 33, "..": "." * 34}
    return "%2F".join(quote(dots.get(part, part), safe="") for part in id.split("/"))


@pytest.mark.parametrize("id", IDS, ids=repr)
def test_every_api_call_accepts_id_with_any_characters(
    auditor: Client, store: Store, id: str
) -> None:
    for version in (0, 1):
        store.add(id, version, {"n": version}, version)
    # Documents that a wrongly split address would read instead.
    for other_id in ("a", "a/versions", "a\r\n"):
        if other_id != id:
            store.add(other_id, 3, {"other": other_id}, 0)
    base = normalize_address(f"/api/v1/history/product-instance/{quote_id(id)}")
    later = minute(9).replace(tzinfo=None).isoformat()
    assert [item["id"] for item in read_data(auditor.get(f"{base}/versions"))["history"]] == [
        id,
        id,
    ]
    assert read_data(auditor.get(f"{base}/versions/1"))["entity"] == {"n": 1}
    assert read_data(auditor.get(f"{base}/at?time={later}"))["entity"] == {"n": 1}
    assert read_data(auditor.get(f"{base}/compare?from=0&to=1"))["to"]["entity"] == {"n": 1}
    values = read_data(auditor.get(f"{base}/fields?path=/n"))["values"]
    assert [item["value"] for item in values] == [1, 0]
    assert read_data(auditor.get(f"{base}/blame"))["id"] == id
    whole = normalize_address(f"/api/v1/applications/{quote_id(id)}")
    assert [item["id"] for item in read_data(auditor.get(f"{whole}/history"))["history"]] == [
        id,
        id,
    ]
    assert read_data(auditor.get(f"{whole}/at?time={later}"))["application"]["entity"] == {"n": 1}


@pytest.mark.parametrize("id", IDS, ids=repr)
def test_every_screen_opens_for_id_with_any_characters(
    auditor: Client, store: Store, id: str
) -> None:
    for version in (0, 1):
        store.add(id, version, {"name": f"Заявка {version}"}, version)
        store.add(id, version, {"fullName": "Рожков Олег"}, version, entity=CHILD, application=id)
    for address in (
        links.build_timeline_url(ROOT, id),
        links.build_application_url(id),
        links.build_moment_url(id),
        links.build_state_url(ROOT, id),
        links.build_snapshot_url(ROOT, id, 1),
        links.build_compare_url(ROOT, id, {"from": 0, "to": 1}),
    ):
        page = auditor.get(normalize_address(address))
        assert page.status_code == 200, address
        assert "<h1>Заявка 1</h1>" in page.content.decode(), address
    child = auditor.get(normalize_address(links.build_timeline_url(CHILD, id)))
    assert "<h1>Рожков Олег</h1>" in child.content.decode()
    body = auditor.get(normalize_address(links.build_application_url(id))).content.decode()
    matches = re.findall(r'href="(/admin/[^"#]*)"', body)
    assert len(matches) > 3
    for link in matches:
        assert auditor.get(normalize_address(html.unescape(link))).status_code in (200, 302), link


@pytest.mark.parametrize("zone", ["UTC", "Europe/Moscow", "Pacific/Kiritimati", "America/New_York"])
@pytest.mark.parametrize("time", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"])
def test_api_accepts_earliest_and_latest_possible_moment(
    auditor: Client, store: Store, zone: str, time: str
) -> None:
    store.add("A1", 0, {"n": 0}, 0)
    for address in ("history/product-instance/A1/at", "applications/A1/at"):
        answer = auditor.get(f"/api/v1/{address}?time={time}&tz={zone}")
        assert answer.status_code == (200 if time.startswith("9") else 404), answer.content
        if answer.status_code == 200:
            # East of UTC the moment has no local time, so it is shown in UTC.
            west = "9999-12-31T18:59:59.000000-05:00"
            expected = west if zone == "America/New_York" else "9999-12-31T23:59:59.000000+00:00"
            assert read_data(answer)["time"] == expected
    for bounds in (f"from={time}", f"to={time}"):
        for address in ("history/product-instance/A1", "applications/A1/history"):
            answer = auditor.get(f"/api/v1/{address}?{bounds}&tz={zone}&pageSize=1")
            assert answer.status_code == (404 if bounds.startswith("to=0") else 200), answer.content


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "America/New_York", "Mars/Phobos"])
@pytest.mark.parametrize("moment", ["0001-01-01T00:00", "9999-12-31T23:59"])
def test_filter_accepts_earliest_and_latest_possible_moment(
    auditor: Client, store: Store, zone: str, moment: str
) -> None:
    store.add("A1", 0, {"n": 0}, 0)
    for name in ("from", "to"):
        every = (name, moment[:4]) in (("from", "0001"), ("to", "9999"))
        answer = auditor.get(f"{A1}?{name}={moment}&tz={zone}")
        assert answer.status_code == 200
        # In New York the last minute is after the last moment: the form reports this at the field.
        assert bool(answer.context["groups"]) == (every and not answer.context["form"].refused)
