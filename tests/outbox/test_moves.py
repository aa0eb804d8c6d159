"""Two transactions move, rename or delete the same rows, or write random changes.

Afterwards the newest version of each document must match the rows of the database.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.apps import apps
from django.db import IntegrityError, connection, connections, models, transaction
from django.db.models import Count, Exists, F, OuterRef, Q, Value
from django.db.models.functions import Concat, Lower
from django.db.models.signals import m2m_changed, post_save, pre_delete, pre_save
from django.db.utils import NotSupportedError
from django.test.utils import CaptureQueriesContext, override_settings

from outbox.recorded import as_one
from tests.outbox import audit
from tests.outbox.test_models import run_overlapping
from tests.outbox.test_write import run_in_threads
from tests.outbox.ways.models import (
    Album,
    Box,
    Cell,
    Country,
    Folder,
    Label,
    OpenFolder,
    Owner,
    Photo,
    Pin,
    Remark,
    Sheet,
    Shout,
    Tag,
    Ticket,
    Twin,
)


@pytest.fixture(autouse=True)
def checked_documents(service: str) -> Iterator[None]:
    """Assert after the test that all recorded documents match their rows, and empty the tables."""
    try:
        yield
        audit.compare_documents()
        audit.check_numbers()
    finally:
        tables = [model._meta.db_table for model in apps.get_app_config("ways").get_models()]
        with connection.cursor() as cursor:
            cursor.execute(f"TRUNCATE {', '.join(dict.fromkeys(tables))} CASCADE")


def create_folder(code: str, **columns: Any) -> Folder:
    return Folder.objects.create(code=code, **columns)


def test_part_moved_by_two_transactions_is_only_in_the_document_it_was_last_moved_to() -> None:
    a, b, c = (create_folder(code) for code in "ABC")
    sheet = Sheet.objects.create(folder=a, name="s")
    run_overlapping(
        lambda: Sheet.objects.filter(pk=sheet.pk).update(folder=b),
        lambda: Sheet(pk=sheet.pk, folder=c, name="s").save(),
    )


@pytest.mark.parametrize("is_bulk", [False, True])
def test_part_deleted_while_it_moves_is_removed_from_both_documents(*, is_bulk: bool) -> None:
    a, b = create_folder("A"), create_folder("B")
    sheet = Sheet.objects.create(folder=a, name="s")
    delete = Sheet.objects.all().delete if is_bulk else sheet.delete
    run_overlapping(lambda: Sheet.objects.update(folder=b), delete)


def test_part_is_only_in_new_document_when_it_moves_while_the_old_document_is_deleted() -> None:
    a, b = create_folder("A"), create_folder("B")
    Label.objects.create(folder=a, name="l")
    run_overlapping(
        lambda: Label.objects.update(folder=b), lambda: Folder.objects.filter(code="A").delete()
    )


def test_cascading_deletion_runs_one_query_for_all_parts_of_a_document() -> None:
    def count_queries(parts: int) -> int:
        whole = create_folder(f"{parts}")
        Label.objects.bulk_create(Label(folder=whole, name=str(n)) for n in range(parts))
        with CaptureQueriesContext(connection) as captured:
            whole.delete()
        return len(captured)

    assert count_queries(90) == count_queries(1)


def test_document_is_deleted_under_both_ids_when_renamed_during_its_deletion() -> None:
    a = create_folder("A")
    run_overlapping(lambda: Folder.objects.update(code="B"), a.delete)
    assert audit.load_recorded() == {}


def test_part_is_only_in_new_document_when_upsert_moves_a_part_not_yet_committed() -> None:
    """The upsert begins before the transaction that creates the part commits."""
    a, b = create_folder("A"), create_folder("B")
    run_overlapping(
        lambda: Sheet.objects.create(folder=a, name="s"),
        lambda: Sheet.objects.bulk_create(
            [Sheet(folder=b, name="s")],
            update_conflicts=True,
            unique_fields=["name"],
            update_fields=["folder"],
        ),
    )


def test_each_document_has_its_own_snapshot_after_two_documents_swap_ids() -> None:
    create_folder("A")
    create_folder("B")

    def swap() -> None:
        for old, new in (("A", "x"), ("B", "A"), ("x", "B")):
            Folder.objects.filter(code=old).update(code=new, title=f"was {old}")

    swap()
    audit.compare_documents()
    with as_one():
        swap()


def test_deletion_that_failed_is_not_recorded_later() -> None:
    folder = create_folder("A")

    def fail(**_: Any) -> None:
        raise LookupError

    pre_delete.connect(fail, Folder)
    try:
        with pytest.raises(LookupError):
            folder.delete()
    finally:
        pre_delete.disconnect(fail, Folder)
    Folder.objects.update(code="B")
    create_folder("A")
    folder.delete()


def test_change_that_a_signal_handler_makes_to_the_row_is_recorded() -> None:
    def lower(instance: Folder, **_: Any) -> None:
        instance.code = instance.code.lower()

    def save_again(instance: Folder, *, created: bool, **_: Any) -> None:
        if created:
            instance.title = "again"
            instance.save()

    pre_save.connect(lower, Folder)
    post_save.connect(save_again, Folder)
    try:
        folder = create_folder("A")
        folder.code = "B"
        folder.save()
        with as_one():
            create_folder("C").delete()
    finally:
        pre_save.disconnect(lower, Folder)
        post_save.disconnect(save_again, Folder)


def test_change_that_fails_in_an_as_one_block_is_not_recorded() -> None:
    folder = create_folder("A")
    create_folder("B")
    with as_one():
        folder.code = "B"
        with pytest.raises(IntegrityError), transaction.atomic():
            folder.save()
        with pytest.raises(IntegrityError), transaction.atomic():
            Folder.objects.update(code="C")
        folder.refresh_from_db()
        folder.title = "x"
        folder.save()


@pytest.mark.parametrize(
    "narrow",
    [
        lambda rows: rows.filter(tags__name="t"),
        lambda rows: rows.annotate(n=Count("tags")).filter(n=1),
        lambda rows: rows.annotate(n=Count("tags")).values("n"),
        lambda rows: rows.distinct(),
        lambda rows: rows.order_by("?"),
        lambda rows: rows.only("code"),
        lambda rows: rows.defer("code"),
        lambda rows: rows.extra(where=["code <> 'x'"]),
        lambda rows: rows.filter(Exists(Tag.objects.filter(folders=OuterRef("pk")))),
        lambda rows: rows.alias(low=Lower("code")).filter(low="a"),
        lambda rows: rows.filter(owner__isnull=True).select_related("owner", "keeper"),
        lambda rows: rows.filter(owner__name__isnull=True),
        lambda rows: rows.filter(Q(sheets__name="s") | Q(code="A")),
        lambda rows: rows.filter(code="A") | rows.filter(code="B"),
        lambda rows: rows.exclude(tags=None),
        lambda rows: rows.filter(pk__in=rows.order_by("-code")[:1]),
    ],
)
def test_update_is_recorded_whatever_the_queryset_is(
    narrow: Callable[[models.QuerySet[Folder]], models.QuerySet[Folder]],
) -> None:
    for code in "AB":
        Tag.objects.get_or_create(name="t")[0].folders.add(create_folder(code))
    assert narrow(Folder.objects.all()).update(title="x") >= 1
    assert any(snapshot.get("title") == "x" for snapshot in audit.load_recorded().values())


def test_recorded_model_raises_djangos_error_when_django_refuses_a_queryset_change() -> None:
    create_folder("A")
    rows = Folder.objects.all()
    for error, change in (
        (TypeError, lambda: rows[:1].update(title="x")),
        (TypeError, rows[:1].delete),
        (TypeError, lambda: rows.values("code").delete()),
        (NotSupportedError, lambda: rows.union(rows).update(title="x")),
        (NotSupportedError, lambda: rows.union(rows).delete()),
    ):
        with pytest.raises(error):
            change()


def test_primary_key_given_as_text_or_as_number_means_the_same_row() -> None:
    folder = create_folder("A", number=5)
    sheet = Sheet.objects.create(folder_id=str(folder.pk), name="s")
    with as_one():
        Sheet(pk=str(sheet.pk), folder_id=str(folder.pk), name="t").save()
        Sheet.objects.filter(pk=sheet.pk).update(name="u")
        Folder(pk=str(folder.pk), code="A", number="5").save()
    Box.objects.create(folder_id="5", name="b")
    assert set(audit.check_numbers()) == {"product-instance/A"}


def test_document_gets_a_new_id_when_relation_in_its_primary_key_changes() -> None:
    for code in ("RU", "SU"):
        Country.objects.create(code=code)
    Twin.objects.create(country_id="RU")
    Twin.objects.update(country=Country.objects.get(code="SU"))
    assert "product-task/RU" not in audit.load_recorded()


def test_changes_through_related_managers_are_recorded() -> None:
    a, b, owner = create_folder("A"), create_folder("B"), Owner.objects.create(name="o")
    a.sheets.update_or_create(name="s", defaults={})
    a.sheets.update(name=Concat("name", Value("x")))
    a.sheets.filter(name="sx").update(folder_id=b.pk)
    a.sheets.bulk_create([Sheet(name="q", folder=a)])
    a.sheets.all().delete()
    a.labels.update_or_create(name="l")
    a.labels.update(folder=b)
    b.labels.update(folder_id="A")
    remark = Remark.objects.create(target=b)
    a.remarks.add(remark)
    audit.compare_documents()
    a.remarks.create(text="z")
    a.remarks.update(text="k")
    a.remarks.set([remark])
    owner.folder_set.set([a, b])
    owner.folder_set.update(title="x")
    owner.folder_set.remove(a)
    owner.kept.add(a)
    a.readers.set([owner], clear=True)
    a.tags.set([Tag.objects.create(name="t")], clear=True)
    audit.compare_documents()
    owner.delete()


def test_part_of_a_missing_document_is_recorded_when_the_document_is_created_later() -> None:
    """When the old document is deleted, Django sets the part's foreign key to a default value.

    This default is the primary key of a document that does not exist yet. PostgreSQL allows it,
    because the foreign key has no constraint.
    """
    pin = Pin.objects.create(folder=create_folder("A"), name="p")
    Folder.objects.filter(code="A").delete()
    Folder.objects.create(pk=1, code="first")
    pin.refresh_from_db()
    pin.name = "q"
    pin.save()


def undo_change(change: Callable[[], object]) -> None:
    """Make a change in a savepoint, and roll back to the savepoint."""
    with transaction.atomic():
        change()
        transaction.set_rollback(True)


def commit_elsewhere(change: Callable[[], object]) -> None:
    """Make a change in a second database session, and commit the change before returning."""
    run_in_threads([change])


def test_document_matches_row_that_second_session_renamed() -> None:
    """Before, the first session gives the row a new name and rolls this back to a savepoint."""
    folder = create_folder("A")

    def rename() -> None:
        Folder.objects.update(code="M")
        create_folder("A")

    with as_one():
        undo_change(lambda: Folder.objects.update(code="B"))
        commit_elsewhere(rename)
        folder.code = "C"
        folder.save()


def test_document_matches_row_that_second_session_created() -> None:
    """Before, the first session inserts a row with the same primary key and rolls this back."""
    with as_one():
        undo_change(lambda: create_folder("A", pk=77))
        commit_elsewhere(lambda: create_folder("M", pk=77))
        Folder.objects.update(code="C")


def test_part_moved_by_second_session_and_then_deleted_is_removed_from_new_document() -> None:
    """Before the move, the first session deletes the old document and rolls this back."""
    folder_a, folder_b = create_folder("A"), create_folder("B")
    Label.objects.create(folder=folder_a, name="l")
    with as_one():
        undo_change(folder_a.delete)
        commit_elsewhere(lambda: Label.objects.update(folder=folder_b))
        Label.objects.get().delete()


def test_change_made_before_a_savepoint_is_recorded_despite_rollback_to_the_savepoint() -> None:
    create_folder("A")
    with as_one():
        Folder.objects.update(code="B")
        manual = transaction.savepoint()
        Folder.objects.update(code="C")
        transaction.savepoint_rollback(manual)
        undo_change(lambda: Folder.objects.update(code="D"))
        Folder.objects.update(code="E")


class ReplicaRouter:
    """A database router that sends all reads to a second connection, as if to a replica.

    Like a replica, the second connection does not see uncommitted changes.
    """

    def db_for_read(self, *_: object, **__: object) -> str:
        return "replica"

    def db_for_write(self, *_: object, **__: object) -> str:
        return "default"

    def allow_relation(self, *_: object, **__: object) -> bool:
        return True


@pytest.fixture
def replica() -> Iterator[None]:
    connections.settings["replica"] = {**connections.settings["default"]}
    try:
        with override_settings(DATABASE_ROUTERS=[f"{__name__}.ReplicaRouter"]):
            yield
    finally:
        connections["replica"].close()
        del connections["replica"]
        del connections.settings["replica"]


@pytest.mark.usefixtures("replica")
def test_snapshot_is_read_from_database_of_the_transaction_and_not_from_a_replica() -> None:
    folder = create_folder("A")
    with transaction.atomic():
        Sheet.objects.create(folder=folder, name="s")
        folder.sheets.create(name="t")
        folder.tags.add(Tag.objects.create(name="x"))
    data = audit.load_recorded()["product-instance/A"]
    assert (data["sheets"], data["tags"]) == (["s", "t"], ["x"])
    assert Folder.objects.all().db == "replica"


def test_row_becomes_a_different_document_when_its_generated_id_changes() -> None:
    shout = Shout.objects.create(name="a")
    Shout.objects.update(name="b")
    audit.compare_documents()
    shout.name = "c"
    shout.save(update_fields=["name"])
    audit.compare_documents()
    Shout.objects.bulk_create(
        [Shout(pk=shout.pk, name="d")],
        update_conflicts=True,
        unique_fields=["pk"],
        update_fields=["name"],
    )
    assert audit.check_numbers()["product-task/C"] == [0, 2]


def test_changes_are_recorded_when_db_table_of_the_model_names_a_schema() -> None:
    album = Album.objects.create(name="a")
    photo = Photo.objects.create(album=album, name="e")
    Album.objects.update(number=1)
    Album.objects.filter(owner__name__isnull=True).update(number=2)
    Photo.objects.filter(album__name="a").update(name="f")
    album.photos.add(photo)
    Photo.objects.bulk_create(
        [Photo(name="f", album=None)],
        update_conflicts=True,
        unique_fields=["name"],
        update_fields=["album"],
    )
    Album.objects.filter(number=2).delete()
    assert audit.check_numbers()["product-task/a"][-1] == 2


def test_document_created_and_deleted_in_one_as_one_block_is_not_recorded() -> None:
    folder = create_folder("A")
    with as_one():
        folder.pk = None
        folder.code = "B"
        folder.save()
        folder.delete()
    assert set(audit.check_numbers()) == {"product-instance/A"}


def test_relation_cleared_by_a_signal_during_another_clear_is_recorded() -> None:
    folder_a, folder_b, tag = create_folder("A"), create_folder("B"), Tag.objects.create(name="t")
    folder_a.tags.add(tag)
    with as_one():
        folder_a.friends.add(folder_b)

    def clear(instance: Folder, action: str, **_: Any) -> None:
        if action == "pre_clear":
            instance.friends.clear()

    m2m_changed.connect(clear, Folder.tags.through)
    try:
        folder_a.tags.clear()
    finally:
        m2m_changed.disconnect(clear, Folder.tags.through)


def write_at_random(random_source: random.Random) -> None:  # noqa: C901 - a list
    """Make a random change, which can violate a constraint."""

    def choose_row(model: Any) -> Any:
        return random_source.choice(list(model.objects.all()) or [None])

    code = random_source.choice("ABCD")
    folder, sheet, tag = choose_row(Folder), choose_row(Sheet), choose_row(Tag)
    match random_source.randrange(17):
        case 0 | 1:
            random_source.choice([Folder, OpenFolder]).objects.create(code=code)
        case 2:
            Sheet.objects.create(folder=folder, name=random_source.choice("stuv"))
        case 3 if folder:
            folder.code = code
            folder.save()
        case 4:
            Folder.objects.filter(code=code).update(code=F("code") if folder else "x", title=code)
        case 5:
            Sheet.objects.update(folder=folder)
        case 6 if sheet:
            sheet.folder = folder
            Sheet.objects.bulk_update([sheet], ["folder"])
        case 7 if folder:
            folder.delete()
        case 8:
            Folder.objects.filter(code__lt=code).delete()
        case 9:
            Sheet.objects.bulk_create(
                [Sheet(folder=folder, name=name) for name in random_source.sample("stuv", 2)],
                update_conflicts=True,
                unique_fields=["name"],
                update_fields=["folder"],
            )
        case 10 if folder:
            folder.tags.set(random_source.sample(list(Tag.objects.all()), Tag.objects.count() // 2))
        case 11:
            Tag.objects.get_or_create(name=code)
        case 12 if tag:
            tag.delete()
        case 13 if folder:
            folder.sheets.set(Sheet.objects.all()[:2])
        case 14 if sheet:
            Cell.objects.create(sheet=sheet, name=code)
            random_source.choice([sheet.delete, lambda: None])()
        case 15 if folder:
            Ticket.objects.get_or_create(folder=folder, line=random_source.randrange(3))
            Ticket.objects.filter(line=1).update(line=random_source.randrange(3))
        case 16 if folder:
            Label.objects.create(folder=folder, name=code)
            Label.objects.filter(name__lt=code).update(folder=random_source.choice([folder, None]))


@pytest.mark.parametrize("seed", range(6))
def test_recorded_document_matches_model_rows_after_random_writes(seed: int) -> None:
    choose = random.Random(seed)
    for _ in range(12):
        try:
            with as_one() if choose.random() < 0.5 else transaction.atomic():
                for _ in range(choose.randrange(1, 4)):
                    try:
                        with transaction.atomic():
                            write_at_random(choose)
                            transaction.set_rollback(choose.random() < 0.15)
                    except IntegrityError:
                        pass
        except IntegrityError:
            pass
        audit.compare_documents()
