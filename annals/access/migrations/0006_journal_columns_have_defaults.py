"""A web of the release before may write the journal while it is replaced by this one. It does not
name these columns."""

from django.db import migrations

COLUMNS = ("identity", "path", "moment")


class Migration(migrations.Migration):
    dependencies = [("access", "0001_release_0_1_0")]
    operations = [
        migrations.RunSQL(
            "ALTER TABLE access_journal "
            + ", ".join(f"ALTER COLUMN {name} SET DEFAULT ''" for name in COLUMNS),
            "ALTER TABLE access_journal "
            + ", ".join(f"ALTER COLUMN {name} DROP DEFAULT" for name in COLUMNS),
        )
    ]
