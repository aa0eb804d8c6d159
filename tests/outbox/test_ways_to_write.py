"""Tests each row of the table in docs/outbox.md about the ways in which Django can write.

After each test the newest version of each document is compared with the rows of the database.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
from asgiref.sync import async_to_sync
from django.apps import apps
from django.contrib.admin import AdminSite, ModelAdmin
from django.contrib.auth.models import User
from django.contrib.contenttypes.fields import GenericForeignKey
from django.contrib.contenttypes.models import ContentType
from django.core import serializers
from django.core.checks import CheckMessage
from django.core.management import call_command
from django.db import connection, connections, models, transaction
from django.db.migrations.state import ProjectState
from django.db.models import F, OuterRef, Subquery, Value
from django.db.models.functions import Concat, Lower
from django.test import RequestFactory, override_settings
from django.test.utils import isolate_apps

import outbox
from outbox.errors import OutboxError, WrongChange
from outbox.recorded import Kind, PartOf, Recorded, RecordedQuerySet, as_one
from outbox.recording import related_changes
from outbox.recording.checks import check_model_managers, check_recorded_model
from tests.outbox import (
    audit,
    recorded_versions,
    service_in_process,
    settings,
)
from tests.outbox.ways.models import (
    Account,
    Box,
    Cell,
    Country,
    Folder,
    Kept,
    Label,
    Letter,
    Limited,
    Loose,
    Measured,
    Memo,
    OpenFolder,
    Owner,
    Pin,
    Reading,
    Remark,
    Seat,
    Sheet,
    Step,
    Tag,
    Ticket,
    Twin,
)

PAGE = Path(__file__).parents[2] / "docs" / "outbox.md"
ROWS = re.search(r"<!-- ways: begin -->\n(.*?)<!-- ways: end -->", PAGE.read_text(), re.DOTALL)
WAYS = [line.split("|")[1].strip() for line in (ROWS[1] if ROWS else "").splitlines()[2:]]

Way = Callable[[], None]
tests: dict[str, Way] = {}


def register_way(name: str) -> Callable[[Way], Way]:
    """Register a function as the test of one way to write rows.

    The ways to write are listed in a table of docs/outbox.md.

    Args:
        name: The first cell of the table row for this way to write.
    """

    def register(test: Way) -> Way:
        assert name not in tests
        tests[name] = test
        return test

    return register


@pytest.fixture(autouse=True)
def empty_tables(service: str) -> Iterator[None]:
    """Empty the tables of the app `ways` after each test."""
    yield
    tables = [model._meta.db_table for model in apps.get_app_config("ways").get_models()]
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {', '.join(dict.fromkeys(tables))} CASCADE")


@pytest.mark.parametrize("name", WAYS)
def test_each_way_to_write_is_recorded_as_the_outbox_page_says(service: str, name: str) -> None:
    tests[name]()


def test_documented_ways_to_write_are_exactly_the_tested_ways() -> None:
    assert sorted(tests) == sorted(WAYS)


TYPES = ("CREATE", "UPDATE", "DELETE")


@contextmanager
def expect_records(*expected: str, exact: bool = True) -> Iterator[None]:
    """Assert that the body of the `with` statement records these versions in the outbox.

    Afterwards, the newest recorded snapshot of each document must match the rows of the service.

    Args:
        expected: Versions such as `CREATE A`, in any order.
        exact: Whether the body must not record further versions.
    """
    earlier = {(version.document, version.version) for version in recorded_versions.load_versions()}
    yield
    recorded = [
        f"{TYPES[version.type]} {version.id}"
        for version in recorded_versions.load_versions()
        if (version.document, version.version) not in earlier
    ]
    if exact:
        assert sorted(recorded) == sorted(expected)
    else:
        assert set(expected) <= set(recorded)
    audit.compare_documents()
    audit.check_numbers()


@contextmanager
def expect_refusal(sentence: str, error: type[Exception] = OutboxError) -> Iterator[None]:
    """Assert that the body of the `with` statement raises an error and changes no rows.

    Args:
        sentence: A regular expression that the text of the error must match.
    """
    rows = audit.load_actual()
    with expect_records(), pytest.raises(error, match=sentence):
        yield
    assert audit.load_actual() == rows


def create_folder(code: str = "A", **columns: Any) -> Folder:
    return Folder.objects.create(code=code, **columns)


def list_ids(problems: list[CheckMessage]) -> list[str | None]:
    return [problem.id for problem in problems]


@register_way("`save()` of a new row, `objects.create()`")
def _() -> None:
    with expect_records("CREATE A"):
        Folder(code="A").save()
    with expect_records("CREATE B"):
        Folder.objects.create(code="B")


@register_way("`save()` of a row that is there, with `update_fields`, deferred fields or `F()`")
def _() -> None:
    folder = create_folder(number=1)
    with expect_records("UPDATE A"):
        folder.title = "x"
        folder.save()
    with expect_records():
        folder.title = "not written"
        folder.save(update_fields=["number"])
        folder.save(update_fields=[])
    with expect_records("UPDATE A"):
        loaded = Folder.objects.defer("title").get()
        Folder.objects.update(title="y")
        loaded.save()
    with expect_records("UPDATE A"):
        folder.title = Concat(F("title"), Value("!"))
        folder.save(update_fields=["title"])


@register_way("`save()` that gives the row another id")
def _() -> None:
    folder_a, folder_b = create_folder("A"), create_folder("B")
    Sheet.objects.create(folder=folder_a, name="s")
    with expect_records("DELETE A", "CREATE A2"):
        folder_a.code = "A2"
        folder_a.save()
    with expect_records("DELETE A2", "CREATE A"):
        folder_a.code = "A"
        folder_a.save(update_fields=["code"])
    with expect_records("DELETE A", "DELETE B", "CREATE A3"), as_one():
        folder_b.delete()
        folder_a.code = "A3"
        folder_a.save()
    with expect_records("DELETE A3", "CREATE A"), as_one():
        for code in ("B", "C", "A"):
            folder_a.code = code
            folder_a.save()
    with expect_records(), as_one():
        folder_a.code = "B"
        folder_a.save()
        folder_a.code = "A"
        folder_a.save()


@register_way("`save()` with another primary key")
def _() -> None:
    country = Country.objects.create(code="RU", name="x")
    with expect_records("CREATE SU"):
        country.code = "SU"
        country.save()
    copy = Sheet.objects.create(name="s", folder=create_folder())
    with expect_records("UPDATE A"):
        copy.pk = None
        copy.name = "t"
        copy.save()


@register_way("`save_base()`, `force_insert`, `using` as a positional argument")
def _() -> None:
    with expect_records("CREATE A"):
        Folder(code="A").save(force_insert=True)
    with expect_records("UPDATE A"):
        folder = Folder.objects.get()
        folder.title = "x"
        folder.save_base()
    with expect_records("DELETE A"):
        folder.delete("default")


@register_way("`get_or_create()`, `update_or_create()`, `select_for_update()` and `save()`")
def _() -> None:
    with expect_records("CREATE A"):
        Folder.objects.get_or_create(code="A")
        Folder.objects.get_or_create(code="A")
    with expect_records("UPDATE A", "CREATE B"):
        Folder.objects.update_or_create(code="A", defaults={"title": "x"})
        Folder.objects.update_or_create(code="B", defaults={"title": "x"})
    with expect_records("DELETE A", "CREATE C"):
        Folder.objects.update_or_create(code="A", defaults={"code": "C"})
    with expect_records("UPDATE B"), transaction.atomic():
        folder = Folder.objects.select_for_update().get(code="B")
        folder.title = "y"
        folder.save()


@register_way(
    "`acreate()`, `asave()`, `adelete()`, `aupdate()`, `abulk_create()`, `abulk_update()`,"
    " `aupdate_or_create()`"
)
def _() -> None:
    @async_to_sync
    async def write() -> None:
        folder = await Folder.objects.acreate(code="A")
        folder.title = "x"
        await folder.asave()
        await Folder.objects.aupdate(title="y")
        [two] = await Folder.objects.abulk_create([Folder(code="B")])
        two.title = "z"
        await Folder.objects.abulk_update([two], ["title"])
        await Folder.objects.aupdate_or_create(code="B", defaults={"title": "zz"})
        await folder.adelete()
        await Folder.objects.filter(code="B").adelete()
        tag = await Tag.objects.acreate(name="t")
        three = await Folder.objects.acreate(code="C")
        await three.tags.aadd(tag)

    with expect_records(
        "CREATE A",
        *["UPDATE A"] * 2,
        "DELETE A",
        "CREATE B",
        *["UPDATE B"] * 2,
        "DELETE B",
        "CREATE t",
        "CREATE C",
        "UPDATE C",
        "UPDATE t",
    ):
        write()


@register_way("proxy models")
def _() -> None:
    with expect_records("CREATE A", "UPDATE A"):
        OpenFolder.objects.create(code="A")
        OpenFolder.objects.update(title="x")
    with expect_records("UPDATE A"), as_one():
        OpenFolder.objects.update(title="y")
        Folder.objects.update(number=1)
    all_versions = override_settings(OUTBOX={**settings.OUTBOX, "SEND_UNCHANGED": True})
    with all_versions, expect_records("UPDATE A"), as_one():
        OpenFolder.objects.update(title="y")
        Folder.objects.update(number=1)
    with expect_records("DELETE A"):
        OpenFolder.objects.get().delete()
    with isolate_apps("tests.outbox.ways"):

        class Other(Folder):
            recorded_as = Kind("product-task")

            class Meta:
                app_label = "ways"
                proxy = True

        class RecordedOwner(Recorded, Owner):  # type: ignore[misc]
            recorded_as = Kind("product-task")

            class Meta:
                app_label = "ways"
                proxy = True

        assert list_ids(check_recorded_model(Other)) == ["outbox.E006"]
        assert list_ids(check_recorded_model(RecordedOwner)) == ["outbox.E006"]


@register_way("abstract models")
def _() -> None:
    with expect_records("CREATE A", "UPDATE A", "DELETE A"):
        letter = Letter.objects.create(name="A")
        Letter.objects.update(note="x")
        letter.delete()


@register_way("multi-table inheritance")
def _() -> None:
    with isolate_apps("tests.outbox.ways"):

        class Plain(models.Model):
            class Meta:
                app_label = "ways"

        class ChildOfPlain(Recorded, Plain):
            recorded_as = Kind("product-task")

            class Meta:
                app_label = "ways"

        class Child(Folder):
            more = models.TextField()

            class Meta:
                app_label = "ways"

        class Grandchild(Child):
            class Meta:
                app_label = "ways"

        for model in (ChildOfPlain, Child, Grandchild):
            [error] = check_recorded_model(model)
            assert (error.id, error.is_serious()) == ("outbox.E005", True)
            assert "multi-table inheritance" in error.msg


@register_way("`CompositePrimaryKey`")
def _() -> None:
    with expect_records("CREATE a", "CREATE b"):
        seat = Seat.objects.create(row=1, place="a", name="a")
        Seat.objects.bulk_create([Seat(row=1, place="b", name="b")])
    with expect_records("UPDATE a", "UPDATE b"):
        Seat.objects.update(price=5)
    with expect_records("UPDATE a"):
        seat.price = 6
        Seat.objects.bulk_update([seat], ["price"])
    with expect_records("DELETE a", "CREATE c"):
        seat.name = "c"
        seat.save()
    with expect_records("UPDATE b"):
        Seat.objects.filter(name="b").update(place="z")
    with expect_records("UPDATE c"):
        Seat.objects.bulk_create(
            [Seat(row=1, place="a", name="c", price=9)],
            update_conflicts=True,
            unique_fields=["row", "place"],
            update_fields=["price"],
        )
    with expect_records("DELETE b"):
        Seat.objects.filter(row=1, name="b").delete()
    with expect_records("DELETE c"):
        Seat.objects.get().delete()
    first, two = create_folder("A"), create_folder("B")
    with expect_records("UPDATE A"):
        Ticket.objects.create(folder=first, line=1, name="t")
    with expect_records("UPDATE A", "UPDATE B"):
        Ticket.objects.update(folder=two)
    with expect_records("UPDATE B"):
        Ticket.objects.filter(line=1).update(name="u")
    with expect_records("UPDATE B"):
        Ticket.objects.get(line=1).delete()
    with isolate_apps("tests.outbox.ways"):

        class Nameless(Recorded):
            recorded_as = Kind("product-task")

            pk = models.CompositePrimaryKey("a", "b")
            a = models.IntegerField()
            b = models.IntegerField()

            class Meta:
                app_label = "ways"

        assert list_ids(check_recorded_model(Nameless)) == ["outbox.E004"]


@register_way("a primary key that people write, a `OneToOneField` as primary key")
def _() -> None:
    with expect_records("CREATE RU", "UPDATE RU", "CREATE RU", "UPDATE RU"):
        country = Country.objects.create(code="RU")
        Country(code="RU", name="x").save()
        Twin.objects.create(country=country)
        Twin.objects.update(name="y")
    with expect_records("DELETE RU", "DELETE RU"):
        country.delete()


@register_way("`bulk_create()`")
def _() -> None:
    with expect_records(*(f"CREATE {n}" for n in range(1200))):
        Country.objects.bulk_create(Country(code=str(n)) for n in range(1200))
    folder = create_folder()
    with expect_records("UPDATE A"):
        Sheet.objects.bulk_create([Sheet(folder=folder, name=name) for name in "st"], 1)
    with expect_records():
        Folder.objects.bulk_create([])


@register_way("`bulk_create(update_conflicts=True)`")
def _() -> None:
    folder_a, folder_b = create_folder("A"), create_folder("B")
    Sheet.objects.create(folder=folder_a, name="s")
    with expect_records("UPDATE A", "UPDATE B"):
        Sheet.objects.bulk_create(
            [
                Sheet(folder=folder_b, name="s"),
                Sheet(folder=folder_b, name="new"),
                Sheet(name="free"),
            ],
            update_conflicts=True,
            unique_fields=["name"],
            update_fields=["folder"],
        )
    with expect_records("UPDATE A", "UPDATE B"):
        Sheet.objects.bulk_create(
            [Sheet(folder=None, name="new"), Sheet(folder=folder_a, name="s")],
            update_conflicts=True,
            unique_fields=["name"],
            update_fields=["folder"],
        )
    with expect_records("CREATE 1", "CREATE 2"):
        Account.objects.bulk_create([Account(number="1"), Account(number="2")])
    with expect_records(
        "UPDATE 1", "CREATE 3"
    ):  # with primary keys that are made here, and not used
        Account.objects.bulk_create(
            [Account(number="1", sum=5), Account(number="3")],
            update_conflicts=True,
            unique_fields=["number"],
            update_fields=["sum"],
        )
    with expect_records("DELETE 1", "CREATE 1a"):
        Account.objects.bulk_create(
            [Account(id=Account.objects.get(number="1").pk, number="1a")],
            update_conflicts=True,
            unique_fields=["pk"],
            update_fields=["number"],
        )


@register_way("`bulk_create(update_conflicts=True)` with an expression in `unique_fields`")
def _() -> None:
    create_folder("a")
    with expect_refusal("if ways.Folder.code is an expression"):
        Folder.objects.bulk_create(
            [Folder(code=Lower(Value("A")), title="x")],
            update_conflicts=True,
            unique_fields=["code"],
            update_fields=["title"],
        )


@register_way("`bulk_create(ignore_conflicts=True)`")
def _() -> None:
    with expect_refusal("ignore_conflicts"):
        Folder.objects.bulk_create([Folder(code="A")], ignore_conflicts=True)


@register_way("`bulk_update()`")
def _() -> None:
    folder_a, folder_b, folder_c = create_folder("A"), create_folder("B"), create_folder("C")
    folder_a.title = folder_b.title = "x"
    with expect_records("UPDATE A", "UPDATE B"):
        Folder.objects.bulk_update([folder_a, folder_b, folder_c], ["title"])
    folder_a.code, folder_b.code = "A2", "B2"
    with expect_records("DELETE A", "CREATE A2", "DELETE B", "CREATE B2"):
        Folder.objects.bulk_update([folder_a, folder_b], ["code"], batch_size=1)


@register_way("`update()` with values, `F()`, subqueries, over relations")
def _() -> None:
    folder = create_folder("A", number=1)
    create_folder("B", number=2)
    Sheet.objects.create(folder=folder, name="s")
    with expect_records("UPDATE A", "UPDATE B"):
        Folder.objects.update(title=Concat(F("code"), Value("!")))
    with expect_records("UPDATE A"):
        name = Sheet.objects.filter(folder=OuterRef("pk")).values("name")[:1]
        assert Folder.objects.filter(sheets__name="s").update(title=Subquery(name)) == 1
    with expect_records("UPDATE B"):
        Folder.objects.exclude(sheets__name="s").select_related("owner").update(title="z")
    with expect_records("UPDATE B"):
        Folder.objects.filter(pk__in=Folder.objects.order_by("-code")[:1]).update(title="y")
    with expect_records():
        Folder.objects.none().update(title="no")
        assert Folder.objects.filter(number=99).update(title="no") == 0


@register_way("`update()` of the id")
def _() -> None:
    folder_a, folder_b = create_folder("A"), create_folder("B")
    with expect_records("DELETE A", "CREATE A2", "DELETE B", "CREATE B2"):
        Folder.objects.update(code=Concat(F("code"), Value("2")))
    with expect_records("DELETE A2", "CREATE C"):
        Folder.objects.filter(pk=folder_a.pk).update(code="C")
    with expect_records("UPDATE B2", "DELETE C"), as_one():
        Folder.objects.filter(pk=folder_b.pk).update(code="X")
        Folder.objects.filter(pk=folder_a.pk).update(code="B2", title="x")
        Folder.objects.filter(pk=folder_b.pk).delete()


@register_way("`update()` of the primary key with a value")
def _() -> None:
    Country.objects.create(code="RU")
    with expect_records("DELETE RU", "CREATE SU"):
        Country.objects.filter(code="RU").update(code="SU")
    with expect_records("DELETE SU", "CREATE EU"):
        Country.objects.filter(code="SU").update(code="EU")
    folder = create_folder()
    with expect_records():  # the code is its id
        Folder.objects.update(id=folder.pk + 1000)
    with expect_records("UPDATE A"):
        Folder.objects.update(title="x", id=folder.pk + 2000)


@register_way("`update()` of the primary key with an expression")
def _() -> None:
    Country.objects.create(code="RU")
    with expect_refusal(r"update\(code=...\) of ways.Country with an expression"):
        Country.objects.update(code=Lower("code"))


MANY = 70_000


@register_way("`update()` of more than 65,535 rows, also with `server_side_binding`")
def _() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO ways_country (code, name) SELECT n, '' FROM generate_series(1, %s) AS n",
            [MANY],
        )
    with bind_on_server():
        assert Country.objects.filter(name="").update(name="x") == MANY
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*), min(data), max(data) FROM outbox_message")
            count, first, last = cursor.fetchone()
        assert (count, first, last) == (
            MANY,
            '{"code":"1","name":"x"}',
            '{"code":"9999","name":"x"}',
        )
        assert Country.objects.filter(code__in=["1", "2"]).delete()[0] == 2


@contextmanager
def bind_on_server() -> Iterator[None]:
    database_settings = connections.settings["default"]
    options = database_settings.get("OPTIONS", {})
    connection.close()
    database_settings["OPTIONS"] = {**options, "server_side_binding": True}
    usual_connection = connections["default"]
    del connections["default"]
    try:
        yield
    finally:
        connections["default"].close()
        database_settings["OPTIONS"] = options
        connections["default"] = usual_connection


@register_way("`objects.filter().delete()`")
def _() -> None:
    folder = create_folder("A")
    create_folder("B")
    Label.objects.create(folder=folder, name="l")
    with expect_records("DELETE A"):
        Folder.objects.filter(code="A").delete()
    with expect_records():
        Folder.objects.filter(code="A").delete()
    with expect_records("DELETE B"):
        Folder.objects.only("pk").delete()


@register_way("`_raw_delete()`")
def _() -> None:
    folder_a, folder_b = create_folder("A"), create_folder("B")
    Sheet.objects.create(folder=folder_a, name="s")
    with expect_records("UPDATE A"):
        Sheet.objects.all()._raw_delete("default")
    with expect_records("DELETE B"):
        Folder.objects.filter(pk=folder_b.pk)._raw_delete("default")


@register_way("a manager that is not made from `RecordedQuerySet`")
def _() -> None:
    with isolate_apps("tests.outbox.ways"):

        class Blind(Recorded):
            recorded_as = Kind("product-task")
            plain: models.Manager[Any] = models.Manager()

            class Meta:
                app_label = "ways"

        assert list_ids(check_model_managers(Blind)) == ["outbox.W002"]


@register_way("a manager that leaves rows out, as deleted ones")
def _() -> None:
    with expect_records("CREATE A"):
        memo = Memo.objects.create(name="A")
    with expect_records("UPDATE A"):
        Memo.objects.all().hide()
    assert not Memo.objects.exists()
    with expect_records("UPDATE A"):
        memo.hidden = False
        memo.save()
    with expect_records("UPDATE A", "DELETE A"):
        Memo.all_rows.update(hidden=True)
        Memo.all_rows.all().delete()
    with isolate_apps("tests.outbox.ways"):

        class Present(models.Manager.from_queryset(RecordedQuerySet)):  # type: ignore[misc]
            def get_queryset(self) -> Any:
                return super().get_queryset().filter(is_gone=False)

        class SomeRows(Recorded):
            recorded_as = Kind("product-task")

            owner = models.ForeignKey(Owner, models.CASCADE, related_name="+")
            is_gone = models.BooleanField()
            objects = Present()

            class Meta:
                app_label = "ways"

        assert list_ids(check_model_managers(SomeRows)) == ["outbox.W004"]

        class AllRows(Recorded):
            recorded_as = Kind("product-task")

            owner = models.ForeignKey(Owner, models.CASCADE, related_name="+")
            is_gone = models.BooleanField()
            objects = Present()
            all_rows = RecordedQuerySet.as_manager()

            class Meta:
                app_label = "ways"
                base_manager_name = "all_rows"

        assert list_ids(check_model_managers(AllRows)) == []


@register_way("`delete()` with `CASCADE`, also from a model that is not recorded")
def _() -> None:
    owner = Owner.objects.create(name="o")
    folder = create_folder("A", keeper=owner)
    Label.objects.create(folder=folder, name="l")
    sheet = Sheet.objects.create(folder=create_folder("B"), name="s")
    Cell.objects.create(sheet=sheet, name="c")
    with expect_records("UPDATE B"), as_one():
        sheet.delete()
    with expect_records("DELETE A", exact=False):
        owner.delete()
    with expect_records("DELETE B"):
        Folder.objects.get().delete()


@register_way("`SET_NULL`, `SET_DEFAULT`, `SET()`")
def _() -> None:
    owner = Owner.objects.create(name="o")
    folder_a, folder_b = create_folder("A", owner=owner), create_folder("B")
    with expect_records("UPDATE A"):
        owner.delete()
    default = Folder.objects.create(pk=1, code="first")
    Pin.objects.create(folder=folder_b, name="p")
    with expect_records("DELETE B", "UPDATE first"):
        folder_b.delete()
    Sheet.objects.create(folder=folder_a, name="s")
    with expect_records("DELETE A"):
        Folder.objects.filter(code="A").delete()
    assert Sheet.objects.get().folder is None
    default.delete()


@register_way("`PROTECT`, `RESTRICT`")
def _() -> None:
    folder = create_folder()
    Kept.objects.create(folder=folder)
    with expect_refusal("protected", models.ProtectedError):
        folder.delete()
    Kept.objects.all().delete()
    Limited.objects.create(folder=folder)
    with expect_refusal("restricted", models.RestrictedError):
        folder.delete()


@register_way("`DO_NOTHING`")
def _() -> None:
    folder = create_folder()
    Loose.objects.create(folder=folder, name="L")
    with expect_records("DELETE A"):
        folder.delete()
    loose = Loose.objects.get()
    with expect_records():
        loose.save()
    with expect_records("DELETE L"):
        loose.delete()


@register_way("a part is saved, updated or deleted")
def _() -> None:
    folder = create_folder()
    with expect_records(*["UPDATE A"] * 4):
        sheet = Sheet.objects.create(folder=folder, name="s")
        sheet.name = "t"
        sheet.save()
        Sheet.objects.update(name="u")
        sheet.delete()


@register_way("a part moves to another document")
def _() -> None:
    folder_a, folder_b = create_folder("A"), create_folder("B")
    sheet = Sheet.objects.create(folder=folder_a, name="s")
    with expect_records("UPDATE A", "UPDATE B"):
        sheet.folder = folder_b
        sheet.save()
    with expect_records("UPDATE A", "UPDATE B"):
        Sheet.objects.update(folder=folder_a)
    with expect_records("UPDATE A", "UPDATE B"):
        Sheet.objects.bulk_update([sheet], ["folder"])
    with expect_records():
        sheet.folder = folder_a
        sheet.save(update_fields=["name"])


@register_way("a part whose foreign key is or becomes null")
def _() -> None:
    folder = create_folder()
    with expect_records():
        free = Sheet.objects.create(name="free")
        free.name = "f"
        free.save()
        Sheet.objects.bulk_create([Sheet(name="g")])
        Sheet.objects.update(folder=None)
        Sheet.objects.bulk_update([free], ["folder"])
        Sheet.objects.filter(name="g").delete()
    with expect_records("UPDATE A"):
        free.folder = folder
        free.save()
    with expect_records("UPDATE A"):
        free.folder = None
        free.save()
    with expect_records():
        free.delete()
    sheet = Sheet.objects.create(name="s", folder=folder)
    with expect_records("UPDATE A"):
        Sheet.objects.filter(pk=sheet.pk).update(folder=None)
    with expect_records():
        Sheet(pk=str(sheet.pk), name="t").save()


@register_way("a part by a foreign key with `to_field`")
def _() -> None:
    folder_a, folder_b = create_folder("A", number=1000), create_folder("B", number=2000)
    model: Any
    for model in (Label, Box):
        with expect_records("UPDATE A"):
            part = model.objects.create(folder=folder_a, name="p")
        with expect_records("UPDATE A", "UPDATE B"):
            part.folder = folder_b
            part.save()
        with expect_records("UPDATE A", "UPDATE B"):
            model.objects.update(folder=folder_a)
        with expect_records("UPDATE A"):
            part.delete()
        with expect_records("UPDATE A", "UPDATE B"):
            model.objects.bulk_create(
                [model(folder=folder_a, name="p"), model(folder=folder_b, name="q")]
            )
        with expect_records("UPDATE A", "UPDATE B"):
            model.objects.all().delete()


@register_way("a part of a part")
def _() -> None:
    folder_a, folder_b = create_folder("A"), create_folder("B")
    sheet = Sheet.objects.create(folder=folder_a, name="s")
    with expect_records("UPDATE A"):
        cell = Cell.objects.create(sheet=sheet, name="c")
    with expect_records("UPDATE A", "UPDATE B"):
        sheet.folder = folder_b
        sheet.save()
    with expect_records("UPDATE B"):
        cell.delete()
    with expect_records("UPDATE A", "UPDATE A"):
        Cell.objects.create(sheet=Sheet.objects.create(folder=folder_a, name="t"), name="d")
    with expect_records("UPDATE A"):
        Cell.objects.update(sheet=None)


@register_way("`order.items.add()`, `create()`, `remove()`, `set()`, `clear()`")
def _() -> None:
    folder_a, folder_b = create_folder("A"), create_folder("B")
    s, t = (Sheet.objects.create(name=name) for name in "st")
    with expect_records("UPDATE A"):
        folder_a.sheets.add(s, t)
    with expect_records("UPDATE A", "UPDATE B"):
        folder_b.sheets.add(t)
    with expect_records("UPDATE A", "UPDATE B"):
        folder_a.sheets.add(t, bulk=False)
    with expect_records("UPDATE A"):
        folder_a.sheets.remove(s)
    with expect_records("UPDATE A", "UPDATE A"):
        folder_a.sheets.set([s])
    with expect_records("UPDATE A"):
        folder_a.sheets.clear()
    with expect_records("UPDATE B"):
        folder_b.sheets.create(name="u")
    with expect_records("UPDATE B"):
        folder_b.sheets.remove(folder_b.sheets.get(), bulk=False)
    with expect_records("UPDATE A", "UPDATE A"):
        folder_a.labels.create(name="l")
        folder_a.labels.add(Label.objects.create(name="m"))
    with expect_records("UPDATE A"):
        folder_a.labels.clear()


@register_way("`order.set_item_order()` of `order_with_respect_to`")
def _() -> None:
    folder = create_folder()
    first, second = (Step.objects.create(folder=folder, name=name) for name in "ab")
    with expect_records("UPDATE A"):
        cast(Any, folder).set_step_order([second.pk, first.pk])


@register_way("`order.tags.add()`, `remove()`, `set()`, `clear()` of a `ManyToManyField`")
def _() -> None:
    folder_a, folder_b = create_folder("A"), create_folder("B")
    s, t = (Tag.objects.create(name=name) for name in "st")
    with expect_records("UPDATE A", "UPDATE s", "UPDATE t"):
        folder_a.tags.add(s, t)
    with expect_records():
        folder_a.tags.add(s)
    with expect_records("UPDATE B", "UPDATE t"):
        t.folders.add(folder_b.pk)
    with expect_records("UPDATE A", "UPDATE t"):
        folder_a.tags.remove(t)
    with expect_records("UPDATE A", "UPDATE A", "UPDATE s", "UPDATE t"):
        folder_a.tags.set([t])
    with expect_records("UPDATE A", "UPDATE B", "UPDATE t"):
        t.folders.clear()
    with expect_records("CREATE u", "UPDATE u", "UPDATE A"):
        folder_a.tags.create(name="u")


@register_way("the deletion of a row that others are related to by a `ManyToManyField`")
def _() -> None:
    folder_a, folder_b = create_folder("A"), create_folder("B")
    tag = Tag.objects.create(name="t")
    tag.folders.set([folder_a, folder_b])
    with expect_records("UPDATE A", "UPDATE B", "DELETE t"):
        tag.delete()
    Tag.objects.create(name="u").folders.set([folder_a])
    with expect_records("UPDATE u", "DELETE A"):
        Folder.objects.filter(code="A").delete()


@register_way("`add()` and `set()` of a symmetrical `ManyToManyField`")
def _() -> None:
    folder_a, folder_b = create_folder("A"), create_folder("B")
    with expect_refusal("is symmetrical"):
        folder_a.friends.add(folder_b)
    with expect_records("UPDATE A", "UPDATE B"), as_one():
        folder_a.friends.set([folder_b])
    with expect_records("UPDATE A", "UPDATE B"):
        folder_b.friends.clear()


@register_way("a `ManyToManyField` with a `through` model that is `Recorded`, a `PartOf`")
def _() -> None:
    folder, owner = create_folder(), Owner.objects.create(name="o")
    with expect_records("UPDATE A"):
        folder.readers.add(owner, through_defaults={"since": 5})
    with expect_records("UPDATE A"):
        folder.readers.clear()
    with expect_records("UPDATE A"):
        owner.read.set([folder])
    with expect_records("UPDATE A"):
        Reading.objects.all().delete()
    with expect_records("UPDATE A", "UPDATE A"):
        Reading.objects.create(folder=folder, owner=owner)
        owner.delete()


@register_way("a `PartOf` that names no foreign key, as a `GenericForeignKey`")
def _() -> None:
    with isolate_apps("tests.outbox.ways"):

        class About(Recorded):
            recorded_as: ClassVar[Any] = PartOf("target")

            owner = models.ForeignKey(Owner, models.CASCADE, related_name="+")
            parent = models.ForeignKey("self", models.CASCADE, null=True, related_name="+")
            target_type = models.ForeignKey(ContentType, models.CASCADE, related_name="+")
            target_id = models.BigIntegerField()
            target = GenericForeignKey("target_type", "target_id")

            class Meta:
                app_label = "ways"

            def method(self) -> str:
                return ""

        for wrong in (
            PartOf("target"),
            PartOf("owner"),
            PartOf("parent"),
            PartOf("target_id"),
            PartOf("nothing"),
            PartOf("owner_id"),
            Kind("product-task", id="nothing"),
            Kind("product-task", id="owner"),
            Kind("product-task", parent="target"),
            Kind("product-task", id="method"),
            "product-task",
            None,
        ):
            About.recorded_as = wrong
            assert list_ids(check_recorded_model(About)) == ["outbox.E004"], wrong
        About.recorded_as = Kind("product-task", id="target_id")
        assert list_ids(check_recorded_model(About)) == ["outbox.W003"]
        About.recorded_as = Kind("shoe")
        assert list_ids(check_recorded_model(About)) == ["outbox.E007"]


@register_way("deletions by a `GenericRelation`")
def _() -> None:
    folder = create_folder()
    remark = Remark.objects.create(target=folder)
    with expect_records("DELETE A", f"DELETE {remark.key.hex}"):
        folder.delete()


@register_way("a transaction that is rolled back")
def _() -> None:
    with expect_records(), transaction.atomic():
        create_folder()
        Folder.objects.update(title="x")
        transaction.set_rollback(True)


@register_way("a savepoint that is rolled back")
def _() -> None:
    folder = create_folder("A")
    sheet = Sheet.objects.create(folder=folder, name="s")

    def change() -> None:
        with transaction.atomic():
            create_folder("B")
            folder.code = "C"
            folder.save()
            sheet.delete()
            Folder.objects.filter(code="C").delete()
            transaction.set_rollback(True)

    with expect_records(), transaction.atomic():
        change()
    folder.refresh_from_db()
    sheet = Sheet.objects.get()
    with expect_records("CREATE D"), as_one():
        change()
        create_folder("D")


@register_way("several changes in `as_one()`")
def _() -> None:
    folder = create_folder("A")
    with expect_records("UPDATE A", "CREATE B"), as_one():
        sheet = Sheet.objects.create(folder=folder, name="s")
        sheet.folder = create_folder("B")
        sheet.save()
        folder.title = "x"
        folder.save()
        folder.labels.create(name="l")
    with expect_records(), as_one():
        create_folder("C").delete()


@register_way("a deletion and a creation of one id in `as_one()`")
def _() -> None:
    folder = create_folder("A")
    with expect_records("UPDATE A"), as_one():
        folder.delete()
        create_folder("A", title="new")
    with expect_records("UPDATE A"), as_one():
        Folder.objects.all().delete()
        Folder.objects.bulk_create([Folder(code="A", title="newer")])
    with expect_records(), as_one():
        Folder.objects.all().delete()
        create_folder("A", title="newer")
    with expect_records("DELETE A"), as_one():
        Folder.objects.all().delete()
        create_folder("A")
        Folder.objects.all().delete()
    with expect_records("CREATE A"), as_one():
        create_folder("A").delete()
        create_folder("A")


@register_way("functions of `transaction.on_commit()`")
def _() -> None:
    with expect_records("CREATE A", "CREATE B"), transaction.atomic():
        create_folder("A")
        transaction.on_commit(partial(create_folder, "B"))
    with expect_records("CREATE C", "CREATE D"), as_one():
        create_folder("C")
        transaction.on_commit(partial(create_folder, "D"))


@register_way("`using()` of a second database")
def _() -> None:
    with service_in_process.create_database("second") as name:
        connections.settings["second"] = {**connections.settings["default"], "NAME": name}
        try:
            call_command("migrate", "contenttypes", database="second", verbosity=0)
            with connections["second"].schema_editor() as editor:
                editor.create_model(Account)
            with expect_refusal("database 'second' has no tables of the outbox"):
                Account.objects.using("second").create(number="RU")
            assert not Account.objects.using("second").exists()
            call_command("migrate", "outbox", database="second", verbosity=0)
            account = Account.objects.using("second").create(number="RU")
            Account.objects.using("second").update(sum=1)
            account.delete()
            with as_one():
                Account.objects.create(number="here")
                Account(number="there").save(using="second")
                Account(number="too").save_base(using="second")
            with connections["second"].cursor() as cursor:
                cursor.execute("SELECT document, type FROM outbox_message ORDER BY updated_at")
                assert cursor.fetchall() == [
                    *(("realty-info/RU", item) for item in (0, 1, 2)),
                    ("realty-info/there", 0),
                    ("realty-info/too", 0),
                ]
            audit.compare_documents()
        finally:
            connections["second"].close()
            del connections["second"]
            del connections.settings["second"]


@register_way("`db_default`, `GeneratedField`, `auto_now`, triggers that change the row itself")
def _() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION double() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN NEW.count := NEW.count * 2; RETURN NEW; END $$;"
            "CREATE TRIGGER twice BEFORE INSERT OR UPDATE ON ways_measured"
            " FOR EACH ROW EXECUTE FUNCTION double()"
        )
    try:
        with expect_records("CREATE a"):
            row = Measured.objects.create(name="a")
        with expect_records("UPDATE a"):
            row.save()
        with expect_records("DELETE a", "CREATE b"):
            Measured.objects.update(name="b")
        assert audit.load_recorded()["product-task/b"]["loud"] == "B"
        assert audit.load_recorded()["product-task/b"]["count"] == Measured.objects.get().count
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION double() CASCADE")


@register_way("`JSONField`, `DecimalField`, moments")
def _() -> None:
    extra = {"a": [1, 2.5, None, {"b": "ж"}], "big": 10**30}
    with expect_records("CREATE a"):
        row = Measured.objects.create(name="a", extra=extra)
    assert audit.load_recorded()["product-task/a"]["extra"] == extra
    with expect_records("UPDATE a"):
        Measured.objects.update(extra={"x": 1})
    with expect_records("CREATE 1"):
        Account.objects.create(number="1", sum="12345678901234567890.0123456789")
    assert audit.load_recorded()["realty-info/1"]["sum"] == "12345678901234567890.0123456789"
    row.delete()


@register_way("the admin: forms with `OneVersion`, actions, `delete_selected`")
def _() -> None:
    create_folder("A")
    create_folder("B")
    page: ModelAdmin[Any] = ModelAdmin(Folder, AdminSite())
    request = RequestFactory().post("/", {"post": "yes"})
    request.user = User(is_superuser=True, pk=1)
    with expect_records("DELETE A", "DELETE B"):
        page.delete_queryset(request, Folder.objects.all())
    # Forms: tests/shop/test_shop.py.


@register_way("`record()`")
def _() -> None:
    folder = create_folder()
    execute_sql("UPDATE ways_folder SET title = 'by SQL'")
    with expect_records("UPDATE A"), transaction.atomic():
        folder.record()
    with expect_refusal("needs a transaction"):
        folder.record()
    with expect_refusal("was never saved"), transaction.atomic():
        Folder(code="new").record()
    sheet = Sheet.objects.create(folder=folder, name="s")
    with expect_records("UPDATE A"), transaction.atomic():
        execute_sql("DELETE FROM ways_sheet")
        sheet.record()
    with expect_records("DELETE A"), transaction.atomic():
        execute_sql("DELETE FROM ways_folder")
        folder.record()
    with expect_records(), transaction.atomic():
        folder.record()
    two = create_folder("A")
    with expect_records(), transaction.atomic():
        folder.record()
    two.delete()


def execute_sql(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


@register_way(
    "SQL: `cursor.execute()`, COPY, triggers that change other rows, `ON DELETE` of a constraint"
)
def _() -> None:
    folder = create_folder()
    sheet = Sheet.objects.create(folder=folder, name="s")
    with expect_records("UPDATE A"), transaction.atomic():
        execute_sql("UPDATE ways_sheet SET name = 't'")
        sheet.record()
    with expect_records("DELETE A", "CREATE B"), transaction.atomic():
        execute_sql("UPDATE ways_folder SET code = 'B'")
        folder.record()
        outbox.record("product-instance", "A", None, deleted=True)


@register_way("rows of a `through` model that is not recorded, written without the relation")
def _() -> None:
    folder, tag = create_folder(), Tag.objects.create(name="t")
    with expect_records("UPDATE A", "UPDATE t"), transaction.atomic():
        Folder.tags.through.objects.create(folder=folder, tag=tag)
        folder.record()
        tag.record()


@register_way("rows of other models that a snapshot, an id or a parent reads")
def _() -> None:
    folder, owner = create_folder(), Owner.objects.create(name="o")
    folder.readers.add(owner)
    with expect_records("UPDATE A"), transaction.atomic():
        Owner.objects.update(name="p")
        folder.record()


@register_way("`loaddata`, `save_base(raw=True)` of Django's `Model`")
def _() -> None:
    fixture = serializers.serialize("json", [Folder(pk=5, code="A")])
    with expect_records("CREATE A"), transaction.atomic():
        for item in serializers.deserialize("json", fixture):
            item.save()
        assert recorded_versions.load_versions() == []
        Folder.objects.get().record()


@register_way("models of migrations (`apps.get_model()` in `RunPython`)")
def _() -> None:
    state = ProjectState.from_apps(apps)
    old: Any = state.apps.get_model("ways", "Country")
    with expect_records("CREATE RU"), transaction.atomic():
        old.objects.create(code="RU")
        assert recorded_versions.load_versions() == []
        Country.objects.get().record()


def test_row_whose_id_is_null_can_be_deleted_but_not_saved(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that existed before the outbox can have an id that documents must not have."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO ways_folder (code, title)"
            " VALUES ('', ''), ('A', ''), (repeat('x', 32), '')"
        )
    folders = list(Folder.objects.order_by("code"))
    monkeypatch.setattr(Folder, "recorded_as", Kind("product-instance", id="number"))
    with pytest.raises(WrongChange, match=r"ways\.Folder\.number must be a text or a number"):
        folders[0].save()
    folders[0].delete()
    Folder.objects.filter(code="A").delete()
    Folder.objects.update(number=5)
    assert [version.id for version in recorded_versions.load_versions()] == ["5"]


def test_error_in_a_snapshot_function_names_the_row(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(row: Any) -> Any:
        return row.owner.name

    monkeypatch.setattr(Folder, "recorded_as", Kind("product-instance", snapshot=fail, id="code"))
    with pytest.raises(AttributeError) as raised:
        create_folder()
    assert "ways.Folder with the primary key" in "".join(raised.value.__notes__)
    assert not Folder.objects.exists()


def test_recording_a_model_needs_no_migration() -> None:
    state = ProjectState.from_apps(apps)
    assert state.models["ways", "folder"].managers == []
    assert "base_manager_name" not in state.models["ways", "folder"].options


def test_log_warns_that_rows_loaded_from_a_fixture_are_not_recorded(
    service: str, caplog: pytest.LogCaptureFixture
) -> None:
    related_changes._warned.clear()
    fixture = serializers.serialize("json", [Country(code="A"), Country(code="B")])
    for entry in serializers.deserialize("json", fixture):
        entry.save()
    assert [entry.getMessage() for entry in caplog.records] == [
        "ways.Country: rows of a fixture are not recorded; call record() for each"
    ]
