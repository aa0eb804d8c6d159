"""The changes of the former migrations 0006 to 0008, which a database may have had in part.

During an upgrade, a web of the previous release may still write to the access journal. Its
statements do not name COLUMNS, so these columns get defaults.

The tables of two removed features leave Django's models. `Opened` counted how many applications a
login opened in an hour; an alert on the access journal replaces it. `Attempts` counted failed
logins; only the demo has passwords now.
"""

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
            # The tables themselves stay until the next release, because a web of the previous
            # release still writes to them.
            state_operations=[migrations.DeleteModel("Opened"), migrations.DeleteModel("Attempts")],
        ),
    ]
