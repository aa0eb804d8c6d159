"""An application as it was at a moment, and the page of a version that the store does not have."""

import re
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.contrib.auth.models import User
from django.test import Client

from history.base import clock
from history.models import ArchivedDay
from tests.db.noted import held_version
from tests.db.screens import A1, text
from tests.db.store import T0, Store

PAGE = "/admin/at/A1/"
CHILD = {"entity": "participant-role", "application": "A1"}
LATER = "Появились позже: Участник Иванов Пётр"


@pytest.fixture
def application(store: Store) -> Store:
    """The rate changes at the minutes 0, 10 and 20; R1 comes at 5 and goes at 15; R2 comes at
    25."""
    for version in range(3):
        store.add("A1", version, {"rate": f"{version + 1}.5"}, 10 * version)
    store.add("R1", 0, {"fullName": "Рожкова Анна"}, 5, **CHILD)
    store.add("R1", 1, {"fullName": "Рожкова Анна"}, 15, type=2, **CHILD)
    store.add("R2", 0, {"fullName": "Иванов Пётр"}, 25, **CHILD)
    return store


def at(minute: int, zone: str = "UTC", hours: int = 0) -> str:
    moment = T0 + timedelta(minutes=minute, hours=hours)
    return f"{PAGE}?time={moment:%Y-%m-%dT%H:%M:%S}&tz={zone}"


@pytest.mark.parametrize(
    "minute, there, not_there",
    [
        (0, ["1.5 % 3.5 %", LATER], ["2.5", "Рожкова"]),
        (9, ["1.5 % 3.5 %", "Рожкова Анна сейчас уже не существует", LATER], ["2.5", "удаление"]),
        (10, ["сейчас иначе", "2.5 % 3.5 %", "Рожкова Анна сейчас уже", LATER], ["1.5"]),
        (19, ["2.5 % 3.5 %", "Рожкова Анна к этому моменту уже не было", LATER], ["1.5"]),
        (
            99,
            [
                "сейчас так же",
                "3.5",
                "Иванов Пётр",
                "Рожкова Анна к этому моменту уже не было",
            ],
            ["2.5", "сейчас иначе", "Появились позже"],
        ),
    ],
)
def test_each_part_is_in_its_version_of_the_moment(
    minute: int, there: list[str], not_there: list[str], application: Store, support: Client
) -> None:
    shown = text(support.get(at(minute))).replace(",", ".")
    assert [each for each in there if each not in shown] == []
    assert [each for each in not_there if each in shown] == []
    # In Moscow it is three hours later.
    moscow = text(support.get(at(minute, "Europe/Moscow", 3))).replace(",", ".")
    assert moscow.partition("По состоянию")[2] == shown.partition("По состоянию")[2] != ""


def test_without_a_moment_it_is_now(application: Store, support: Client) -> None:
    shown = text(support.get(PAGE))
    assert "Показано нынешнее состояние" in shown
    assert "Иванов Пётр" in shown


@pytest.mark.parametrize("wrong", ["", "someday", "0001-01-01T00:00&tz=Europe/Moscow"])
def test_a_wrong_moment_is_said(wrong: str, application: Store, support: Client) -> None:
    page = support.get(f"{PAGE}?time={wrong}")
    assert page.status_code == 200
    assert "errorlist" in page.content.decode()
    assert "Иванов Пётр" not in text(page)


@pytest.mark.parametrize("form", ["%d.%m.%Y", "%Y-%m-%d"])
def test_a_date_alone_is_the_end_of_that_day(
    form: str, application: Store, support: Client
) -> None:
    begin = T0.replace(hour=0)
    page = support.get(PAGE, {"time": T0.strftime(form)})
    assert page.context["said"] == begin + timedelta(days=1, seconds=-1)
    assert "Иванов Пётр" in text(page)
    moscow = support.get(PAGE, {"time": T0.strftime(form), "tz": "Europe/Moscow"})
    assert moscow.context["said"] == begin + timedelta(hours=21, seconds=-1)
    support.cookies["annals_zone"] = "moscow"
    without_zone = support.get(PAGE, {"time": T0.strftime(form)})
    assert without_zone.context["said"] == moscow.context["said"]
    del support.cookies["annals_zone"]
    midnight = support.get(PAGE, {"time": f"{T0.strftime(form)} 0:00"})
    assert midnight.status_code == 404


@pytest.mark.parametrize("form", ["сегодня", "%d.%m.%Y"])
def test_today_alone_is_now(form: str, application: Store, support: Client) -> None:
    page = support.get(PAGE, {"time": clock.now().strftime(form)})
    assert clock.now() - timedelta(minutes=1) < page.context["said"] <= clock.now()


@pytest.mark.parametrize("form", ["%d.%m.%Y", "%d.%m.%Y %H:%M"])
def test_a_moment_to_come_has_no_state(form: str, application: Store, support: Client) -> None:
    page = support.get(PAGE, {"time": (clock.now() + timedelta(days=1)).strftime(form)})
    assert page.status_code == 200
    assert "Этот момент ещё не наступил." in text(page)
    assert "сейчас так же" not in text(page)
    assert page.context["parts"] == []
    assert "Состояние на" not in text(page)


def test_the_head_says_which_status_was_then(store: Store, support: Client) -> None:
    """Of a moment also which one is now; of a version alone no other one is read."""
    for version, status in enumerate(["A", "B", "A"]):
        store.add("A1", version, {"name": "Ипотека", "status": status}, 10 * version)
    heads = [
        *(text(support.get(address)).partition("Копировать")[0] for address in (at(15), at(5))),
        *(
            text(support.get(f"/admin/history/product-instance/A1/versions/{number}/")).partition(
                "Копировать"
            )[0]
            for number in (1, 2)
        ),
    ]
    assert ["тогда: B · сейчас: A" in head for head in heads] == [True, False, False, False]
    assert ["тогда: B" in head for head in heads] == [True, False, True, False]
    store.add("A1", 3, {"name": "Ипотека"}, 30, type=2)
    assert "тогда: A · сейчас: больше не существует" in text(support.get(at(5)))


@pytest.mark.parametrize(
    "version, created, said",
    [
        (0, None, "Заявка: в этот момент документа ещё не было."),
        (3, timedelta(minutes=0), "Заявка: в этот момент документа ещё не было."),
        (3, timedelta(hours=-2), "Версия на этот момент не поступала."),
        (3, timedelta(days=-365), "Версии на этот момент удалены: срок их хранения истёк."),
        (3, None, "удалены по сроку хранения или не поступали."),
    ],
)
def test_a_moment_with_nothing_is_not_an_unknown_id(
    version: int, created: timedelta | None, said: str, store: Store, support: Client
) -> None:
    data = {"createdAt": f"{T0 + created:%Y-%m-%dT%H:%M:%S}"} if created is not None else {}
    store.add("B1", version, {"name": "Ипотека", **data}, 0)
    page = support.get(at(-60).replace("A1", "B1"))
    assert page.status_code == 404
    assert said in text(page)
    assert "Ипотека" in text(page)
    assert "возможно, это документ другого вида" not in text(page)
    old = text(support.get("/admin/at/B1/?time=2000-01-01"))
    assert re.search(r"Версии хранятся с \d\d\.\d\d\.20\d\d: более ранние", old)
    assert f'value="{T0 - timedelta(minutes=60):%Y-%m-%dT%H:%M:%S}"' in page.content.decode()


def test_versions_that_may_have_come_before_the_moment_are_said(
    application: Store, support: Client
) -> None:
    application.add("A1", 5, {"rate": "9.5"}, 60)
    application.add("R2", 2, {"fullName": "Иванов Пётр"}, 60, **CHILD)
    shown = text(support.get(at(30)))
    for missing in ("Версии 3–4 не поступали", "Версия 1 не поступала"):
        assert f"{missing}: состояние на этот момент могло быть другим." in shown
    for minute in (9, 70):  # the next version is there, or the gap is older
        assert "могло быть другим" not in text(support.get(at(minute)))


def test_a_missing_version_in_quarantine_may_be_of_before_the_moment(
    application: Store, support: Client
) -> None:
    application.add("A1", 4, {"rate": "9.5"}, 60)
    held_version("A1", 3)
    shown = text(support.get(at(30)))
    assert "В хранилище есть не все версии: состояние на этот момент могло быть другим." in shown
    assert "Версия 3 пришла" in shown


@pytest.fixture
def gaps(store: Store) -> Store:
    """Versions 1, 2 and 5 of one entity; its createdAt says that version 0 existed."""
    for version in (1, 2, 5):
        data = {"rate": version, "createdAt": T0.isoformat()}
        store.add("A1", version, data, version)
    return store


@pytest.mark.parametrize(
    "address, why",
    [
        ("versions/3/", "Версия 3 не поступала."),
        ("versions/0/", "Версия 0 не поступала."),
        ("?version=9", "Версии 9 в этой истории не было."),
        (f"?version={2**64}", f"Версии {2**64} в этой истории не было."),
        ("compare/?from=1&to=3", "Версия 3 не поступала."),
        ("compare/?from=9&to=1", "Версии 9 в этой истории не было."),
        ("versions/3/unmask/?path=/rate", "Версия 3 не поступала."),
    ],
)
def test_it_says_why(gaps: Store, support: Client, address: str, why: str) -> None:
    if "unmask" in address:
        support.force_login(User.objects.get(username="privacy"))
    page = support.get(f"{A1}{address}", follow=True)
    said = text(page)
    assert page.status_code == 404
    assert "версия 5" in said  # the head
    assert 'name="version"' in page.content.decode()
    assert why in said
    assert "Проверьте" not in said
    assert f'href="{A1}"' in page.content.decode()


def test_what_retention_removed(store: Store, support: Client) -> None:
    created = clock.now() - timedelta(days=200)
    store.add("A1", 7, {"createdAt": created.isoformat()}, 0)
    said = text(support.get(f"{A1}versions/3/"))
    assert "Версия 3 удалена: вышел срок хранения." in said


def test_what_may_be_in_the_archive(store: Store, support: Client, settings: Any) -> None:
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, archive_url="/archive")
    ArchivedDay.objects.create(
        table="product_instance_aud", day=T0.date() - timedelta(days=150), rows=1, table_bytes=1,
        file_bytes=1, digest="", files=[{"first": "A0", "last": "A9"}], archived_at=T0,
    )  # fmt: skip
    created = clock.now() - timedelta(days=200)
    store.add("A1", 7, {"createdAt": created.isoformat()}, 0)
    for address, said in (
        (f"{A1}versions/3/", "Возможно, версия 3 в архиве. Дни из архива может вернуть"),
        (A1, "Более ранние версии в архиве. Дни из архива может вернуть администратор"),
        (f"/admin/at/A1/?time={T0.date() - timedelta(days=100)}", "на этот момент в архиве."),
        ("/admin/history/product-instance/A5/", "Возможно, документ есть в архиве."),
    ):
        assert said in text(support.get(address)), address
    assert "архив" not in text(support.get("/admin/history/product-instance/B5/"))


def test_what_could_not_be_stored_is_found_by_its_document(store: Store, support: Client) -> None:
    held_version("Q1", 3)
    for address in ("/admin/history/?q=Q1", "/admin/history/product-instance/Q1/"):
        said = text(support.get(address))
        assert "Версия 3 пришла" in said
        assert "попала в карантин: неверное время изменения (updatedAt)." in said
    assert "в карантине" not in text(support.get("/admin/history/?q=Q2"))


def test_documents_without_names_are_called_by_their_ids_once(
    store: Store, support: Client
) -> None:
    store.add("A1", 0, {"rate": "1.5"}, 0)
    for id in ("R1", "R2"):
        store.add(id, 0, {"role": "x"}, 1, **CHILD)
    page = support.get(at(5)).content.decode()
    assert [page.count(f">{id}</") for id in ("R1", "R2")] == [1, 1]
    assert 'class="ident">R' not in page
