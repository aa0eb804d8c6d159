"""A web of the release before 0005 still writes the journal while it is replaced by this one. It
does not name the columns that 0005 added; 0005 gives them defaults only since."""

from django.db import migrations

COLUMNS = ("identity", "path", "moment")


class Migration(migrations.Migration):
    dependencies = [("access", "0005_who_in_particular")]
    operations = [
        migrations.RunSQL(
            "ALTER TABLE access_journal "
            + ", ".join(f"ALTER COLUMN {name} SET DEFAULT ''" for name in COLUMNS),
            "ALTER TABLE access_journal "
            + ", ".join(f"ALTER COLUMN {name} DROP DEFAULT" for name in COLUMNS),
        )
    ]
