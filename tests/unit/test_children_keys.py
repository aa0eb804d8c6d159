"""The search keys of children that the consumer collects while it stores versions."""

from history.documents.record import Record
from history.store.search_index.children import ChildRow, NewChildren

DAY = 86_400_000_000


def record(day: int, application: str | None = "A1", id: str = "P1") -> Record:
    return Record("participant-role", id, 0, 0, day * DAY + 5, "crm", None, application, b"{}")


def test_search_key_of_child_is_collected_once_with_first_and_last_day() -> None:
    children = NewChildren()
    for day in (7, 3, 5):
        children.add_record(record(day))
    children.add_record(record(4, "A2"))
    children.add_record(record(4, id="P0"))
    assert children.list_rows() == [
        ChildRow("A1", "participant-role", "P0", 4, 4),
        ChildRow("A1", "participant-role", "P1", 3, 7),
        ChildRow("A2", "participant-role", "P1", 4, 4),
    ]


def test_application_is_not_collected_as_a_child() -> None:
    children = NewChildren()
    children.add_record(record(1, application=None))
    assert children.list_rows() == []


def test_search_key_of_child_is_collected_only_once_for_each_application_and_day() -> None:
    children = NewChildren()
    children.add_record(record(7))
    again = NewChildren(children.fingerprints)
    again.add_record(record(7))
    assert again.list_rows() == []
    again.add_record(record(8))
    again.add_record(record(7, "A2"))
    assert [(row.application, row.day) for row in again.list_rows()] == [("A1", 8), ("A2", 7)]
