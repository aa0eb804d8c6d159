"""What 0006 to 0008 did; a database that has some of them goes on.

A web of the release before may write the journal while it is replaced by this one. It does not
name these columns. An alert on the access journal replaces the quota, which counted for an hour.
Passwords are for the demo only: failed logins are not counted.
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
            # The tables stay until the next release: a web of this one's predecessor writes them.
            state_operations=[migrations.DeleteModel("Opened"), migrations.DeleteModel("Attempts")],
        ),
    ]
