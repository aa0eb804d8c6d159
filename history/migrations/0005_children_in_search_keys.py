"""The first day of a child in search_key. On a cluster its rows list children of applications."""

from django.db import migrations, models

FORGET_MARK = "DELETE FROM django_migrations WHERE name = 'search_keys_of_children'"


class Migration(migrations.Migration):
    dependencies = [("history", "0004_late_versions")]
    operations = [
        migrations.AddField("searchkey", "first_day", models.DateField(null=True)),
        # An earlier release stores children without listing them.
        migrations.RunSQL(migrations.RunSQL.noop, FORGET_MARK),
    ]
