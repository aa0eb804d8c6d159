from django.db import migrations

AT_ONCE = 200


def name_old_messages(apps, schema_editor):
    """Write down which version each message in quarantine is; a few at a time, without holding
    many payloads in memory."""
    from django.conf import settings

    from ingest.source.message import Message
    from ingest.source.names import declared, named

    Quarantined = apps.get_model("ingest", "Quarantined")
    shapes, last = declared(settings.ANNALS.envelopes_file), 0
    while True:
        rows = Quarantined.objects.filter(id__gt=last, entity="").order_by("id")[:AT_ONCE]
        found = list(rows.only("id", "topic", "partition", "offset", "key", "value"))
        if not found:
            return
        for row in found:
            payload = [None if each is None else bytes(each) for each in (row.key, row.value)]
            message = Message(row.topic, row.partition, row.offset, -1, *payload)
            row.entity, row.entity_id, row.version = named(message, shapes)
        Quarantined.objects.bulk_update(found, ["entity", "entity_id", "version"])
        last = found[-1].id


class Migration(migrations.Migration):

    # No lock for longer than a few messages take.
    atomic = False

    dependencies = [
        ('ingest', '0006_fates'),
    ]

    operations = [
        migrations.RunPython(name_old_messages, migrations.RunPython.noop),
    ]
