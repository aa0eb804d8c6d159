"""What the database notes of the archive, for those who read no file of it."""

from datetime import date

from django.db import connection

from history.entities import Entity
from history.models import ArchivedDay


def oldest_day(entity: Entity) -> date | None:
    """The oldest day of an entity's table that is in the archive; None where none is."""
    days = ArchivedDay.objects.filter(table=entity.table).order_by("day")
    return days.values_list("day", flat=True).first()


def may_have(entity: Entity, id_: str) -> bool:
    """Whether the range of ids of an archived file includes this id, so that it may be there."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT FROM archived_day, jsonb_array_elements(files) AS file"
            ' WHERE archived_day."table" = %s AND %s COLLATE "C"'
            " BETWEEN file->>'first' AND file->>'last')",
            [entity.table, id_],
        )
        (found,) = cursor.fetchone() or (False,)
        return bool(found)
