"""Fills the columns of 0011_open_messages in the rows of earlier releases that are still open."""

from django.db import migrations

ROWS = 100


def fill(apps, schema_editor):
    """Fill ROWS rows at a time, because each row may hold a large message."""
    from ingest.messages.message import KafkaMessage
    from ingest.messages.identity import find_parent_and_time
    from ingest.store.rejects import headers_from_json

    rows = apps.get_model("ingest", "Quarantined").objects.using(schema_editor.connection.alias)
    count, after = ROWS, 0
    while count == ROWS:
        count = 0
        open_rows = rows.filter(status__in=["new", "retrying", "failed"], id__gt=after)
        for row in open_rows.order_by("id")[:ROWS]:
            count, after = count + 1, row.id
            key, value = (None if raw is None else bytes(raw) for raw in (row.key, row.value))
            message = KafkaMessage(
                row.topic, row.partition, row.offset, -1, key, value, headers_from_json(row.headers)
            )
            application, made_at = find_parent_and_time(message)
            if application or made_at:
                rows.filter(id=row.id).update(application=application, made_at=made_at)


class Migration(migrations.Migration):

    # Each row is updated in its own transaction, because consumers write the same table meanwhile.
    atomic = False

    dependencies = [
        ('ingest', '0011_open_messages'),
    ]

    operations = [
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
