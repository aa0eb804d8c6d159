"""The page of an application at a moment, and the page of a version that is not in the store."""

import re
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.contrib.auth.models import User
from django.test import Client

from history.common import clock
from history.models import ArchivedDay
from tests.db.ingest_rows import create_quarantined_version
from tests.db.screens import A1, read_text
from tests.db.store import T0, Store

PAGE = "/admin/at/A1/"
CHILD = {"entity": "participant-role", "application": "A1"}
LATER = "Came later: Participant Иванов Пётр"


@pytest.fixture
def changing_application(store: Store) -> Store:
    """Store an application that changes over 25 minutes.

    The rate changes at the minutes 0, 10 and 20. The child R1 is created at minute 5 and deleted at
    minute 15. The child R2 is created at minute 25.
    """
    for version in range(3):
        store.add("A1", version, {"rate": f"{version + 1}.5"}, 10 * version)
    store.add("R1", 0, {"fullName": "Рожкова Анна"}, 5, **CHILD)
    store.add("R1", 1, {"fullName": "Рожкова Анна"}, 15, type=2, **CHILD)
    store.add("R2", 0, {"fullName": "Иванов Пётр"}, 25, **CHILD)
    return store


def open_moment(minute: int, zone: str = "UTC", hours: int = 0) -> str:
    moment = T0 + timedelta(minutes=minute, hours=hours)
    return f"{PAGE}?time={moment:%Y-%m-%dT%H:%M:%S}&tz={zone}"


@pytest.mark.parametrize(
    "minute, present_texts, absent_texts",
    [
        (0, ["1.5 % 3.5 %", LATER], ["2.5", "Рожкова"]),
        (9, ["1.5 % 3.5 %", "Рожкова Анна no longer exists today", LATER], ["2.5", "deleted"]),
        (
            10,
            ["different today", "2.5 % 3.5 %", "Рожкова Анна no longer exists today", LATER],
            ["1.5"],
        ),
        (19, ["2.5 % 3.5 %", "Рожкова Анна no longer existed", LATER], ["1.5"]),
        (
            99,
            [
                "the same today",
                "3.5",
                "Иванов Пётр",
                "Рожкова Анна no longer existed",
            ],
            ["2.5", "different today", "Came later"],
        ),
    ],
)
def test_moment_page_shows_application_and_children_as_of_the_moment(
    minute: int,
    present_texts: list[str],
    absent_texts: list[str],
    changing_application: Store,
    support: Client,
) -> None:
    shown_text = read_text(support.get(open_moment(minute))).replace(",", ".")
    assert [item for item in present_texts if item not in shown_text] == []
    assert [item for item in absent_texts if item in shown_text] == []
    # In Moscow it is three hours later.
    moscow = read_text(support.get(open_moment(minute, "Europe/Moscow", 3))).replace(",", ".")
    assert moscow.partition("As it was on")[2] == shown_text.partition("As it was on")[2] != ""


def test_moment_page_without_moment_shows_now(changing_application: Store, support: Client) -> None:
    shown_text = read_text(support.get(PAGE))
    assert "This is how it is now" in shown_text
    assert "Иванов Пётр" in shown_text


@pytest.mark.parametrize("wrong", ["", "someday", "0001-01-01T00:00&tz=Europe/Moscow"])
def test_moment_page_shows_an_error_when_the_requested_moment_is_invalid(
    wrong: str, changing_application: Store, support: Client
) -> None:
    page = support.get(f"{PAGE}?time={wrong}")
    assert page.status_code == 200
    assert "errorlist" in page.content.decode()
    assert "Иванов Пётр" not in read_text(page)


@pytest.mark.parametrize("form", ["%d.%m.%Y", "%Y-%m-%d"])
def test_moment_page_takes_a_date_as_end_of_that_day(
    form: str, changing_application: Store, support: Client
) -> None:
    begin = T0.replace(hour=0)
    page = support.get(PAGE, {"time": T0.strftime(form)})
    assert page.context["requested_moment"] == begin + timedelta(days=1, seconds=-1)
    assert "Иванов Пётр" in read_text(page)
    moscow = support.get(PAGE, {"time": T0.strftime(form), "tz": "Europe/Moscow"})
    assert moscow.context["requested_moment"] == begin + timedelta(hours=21, seconds=-1)
    support.cookies["annals_zone"] = "moscow"
    without_zone = support.get(PAGE, {"time": T0.strftime(form)})
    assert without_zone.context["requested_moment"] == moscow.context["requested_moment"]
    del support.cookies["annals_zone"]
    midnight = support.get(PAGE, {"time": f"{T0.strftime(form)} 0:00"})
    assert midnight.status_code == 404


@pytest.mark.parametrize("form", ["today", "%d.%m.%Y"])
def test_moment_page_shows_now_when_the_requested_date_is_today(
    form: str, changing_application: Store, support: Client
) -> None:
    page = support.get(PAGE, {"time": clock.now().strftime(form)})
    assert clock.now() - timedelta(minutes=1) < page.context["requested_moment"] <= clock.now()


@pytest.mark.parametrize("form", ["%d.%m.%Y", "%d.%m.%Y %H:%M"])
def test_moment_page_refuses_future_moment(
    form: str, changing_application: Store, support: Client
) -> None:
    page = support.get(PAGE, {"time": (clock.now() + timedelta(days=1)).strftime(form)})
    assert page.status_code == 200
    assert "This moment is still to come." in read_text(page)
    assert "the same today" not in read_text(page)
    assert page.context["parts"] == []
    assert "As it was on" not in read_text(page)


def test_heading_shows_status_at_requested_moment_and_current_status(
    store: Store, support: Client
) -> None:
    """The page of one version does not show the current status, because it reads only this
    version."""
    for version, status in enumerate(["A", "B", "A"]):
        store.add("A1", version, {"name": "Ипотека", "status": status}, 10 * version)
    heads = [
        *(
            read_text(support.get(address)).partition("Copy")[0]
            for address in (open_moment(15), open_moment(5))
        ),
        *(
            read_text(
                support.get(f"/admin/history/product-instance/A1/versions/{number}/")
            ).partition("Copy")[0]
            for number in (1, 2)
        ),
    ]
    assert ["then: B · now: A" in head for head in heads] == [True, False, False, False]
    assert ["then: B" in head for head in heads] == [True, False, True, False]
    store.add("A1", 3, {"name": "Ипотека"}, 30, type=2)
    assert "then: A · now: no longer exists" in read_text(support.get(open_moment(5)))


@pytest.mark.parametrize(
    "version, created, expected_text",
    [
        (0, None, "Application: did not exist yet at that moment."),
        (3, timedelta(minutes=0), "Application: did not exist yet at that moment."),
        (3, timedelta(hours=-2), "The version of that moment never arrived."),
        (
            3,
            timedelta(days=-365),
            "The versions of that moment were removed: they are past the days that are kept.",
        ),
        (3, None, "removed by age, or never arrived."),
    ],
)
def test_moment_page_explains_absence_when_moment_is_before_first_stored_version(
    version: int, created: timedelta | None, expected_text: str, store: Store, support: Client
) -> None:
    data = {"createdAt": f"{T0 + created:%Y-%m-%dT%H:%M:%S}"} if created is not None else {}
    store.add("B1", version, {"name": "Ипотека", **data}, 0)
    page = support.get(open_moment(-60).replace("A1", "B1"))
    assert page.status_code == 404
    assert expected_text in read_text(page)
    assert "Ипотека" in read_text(page)
    assert "it may also be of another kind" not in read_text(page)
    old = read_text(support.get("/admin/at/B1/?time=2000-01-01"))
    assert re.search(r"Versions are kept from 20\d\d-\d\d-\d\d on: older ones", old)
    assert f'value="{T0 - timedelta(minutes=60):%Y-%m-%dT%H:%M:%S}"' in page.content.decode()


def test_moment_page_warns_of_missing_versions_before_the_moment(
    changing_application: Store, support: Client
) -> None:
    changing_application.add("A1", 5, {"rate": "9.5"}, 60)
    changing_application.add("R2", 2, {"fullName": "Иванов Пётр"}, 60, **CHILD)
    shown_text = read_text(support.get(open_moment(30)))
    for missing in ("Versions 3–4 never arrived", "Version 1 never arrived"):
        assert f"{missing}: the state at this moment may have been different." in shown_text
    for minute in (
        9,
        70,
    ):  # no version is missing before 9; at 70 there are newer versions than the missing ones
        assert "may have been different" not in read_text(support.get(open_moment(minute)))


def test_moment_page_warns_of_quarantined_version_before_the_moment(
    changing_application: Store, support: Client
) -> None:
    changing_application.add("A1", 4, {"rate": "9.5"}, 60)
    create_quarantined_version("A1", 3)
    shown_text = read_text(support.get(open_moment(30)))
    assert (
        "Not all versions are in the store: the state at this moment may have been different."
        in shown_text
    )
    assert "Version 3 came" in shown_text


@pytest.fixture
def document_with_gaps(store: Store) -> Store:
    """Store the versions 1, 2 and 5 of A1, with a createdAt that proves that version 0 existed."""
    for version in (1, 2, 5):
        data = {"rate": version, "createdAt": T0.isoformat()}
        store.add("A1", version, data, version)
    return store


@pytest.mark.parametrize(
    "address, reason",
    [
        ("versions/3/", "Version 3 never arrived."),
        ("versions/0/", "Version 0 never arrived."),
        ("?version=9", "The history has no version 9."),
        (f"?version={2**64}", f"The history has no version {2**64}."),
        ("compare/?from=1&to=3", "Version 3 never arrived."),
        ("compare/?from=9&to=1", "The history has no version 9."),
        ("versions/3/unmask/?path=/rate", "Version 3 never arrived."),
    ],
)
def test_page_of_missing_version_says_why_version_is_missing(
    document_with_gaps: Store, support: Client, address: str, reason: str
) -> None:
    if "unmask" in address:
        support.force_login(User.objects.get(username="privacy"))
    page = support.get(f"{A1}{address}", follow=True)
    page_text = read_text(page)
    assert page.status_code == 404
    assert "version 5" in page_text  # in the heading
    assert 'name="version"' in page.content.decode()
    assert reason in page_text
    assert "Check the id" not in page_text
    assert f'href="{A1}"' in page.content.decode()


def test_page_of_version_says_that_retention_removed_the_version(
    store: Store, support: Client
) -> None:
    created = clock.now() - timedelta(days=200)
    store.add("A1", 7, {"createdAt": created.isoformat()}, 0)
    page_text = read_text(support.get(f"{A1}versions/3/"))
    assert "Version 3 was removed: it is past the days that are kept." in page_text


def test_page_of_missing_version_says_that_version_may_be_archived(
    store: Store, support: Client, settings: Any
) -> None:
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, archive_url="/archive")
    ArchivedDay.objects.create(
        table="product_instance_aud",
        day=T0.date() - timedelta(days=150),
        rows=1,
        table_bytes=1,
        file_bytes=1,
        digest="",
        files=[{"first": "A0", "last": "A9"}],
        archived_at=T0,
    )
    created = clock.now() - timedelta(days=200)
    store.add("A1", 7, {"createdAt": created.isoformat()}, 0)
    for address, sentence in (
        (
            f"{A1}versions/3/",
            "Version 3 may be in the archive. The administrator of Annals can bring back",
        ),
        (A1, "Older versions are in the archive. The administrator of Annals can bring back"),
        (
            f"/admin/at/A1/?time={T0.date() - timedelta(days=100)}",
            "of that moment may be in the archive.",
        ),
        ("/admin/history/product-instance/A5/", "It may be in the archive."),
    ):
        assert sentence in read_text(support.get(address)), address
    assert "archive" not in read_text(support.get("/admin/history/product-instance/B5/"))


def test_page_of_unknown_document_lists_its_quarantined_versions(
    store: Store, support: Client
) -> None:
    create_quarantined_version("Q1", 3)
    for address in ("/admin/history/?q=Q1", "/admin/history/product-instance/Q1/"):
        page_text = read_text(support.get(address))
        assert "Version 3 came" in page_text
        assert "is in quarantine: updatedAt is wrong." in page_text
    assert "in quarantine" not in read_text(support.get("/admin/history/?q=Q2"))


def test_page_of_document_without_name_shows_its_id_once(store: Store, support: Client) -> None:
    store.add("A1", 0, {"rate": "1.5"}, 0)
    for id in ("R1", "R2"):
        store.add(id, 0, {"role": "x"}, 1, **CHILD)
    page = support.get(open_moment(5)).content.decode()
    assert [page.count(f">{id}</") for id in ("R1", "R2")] == [1, 1]
    assert 'class="ident">R' not in page
