"""Passwords are for the demo only: failed logins are not counted."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("access", "0007_no_quota")]

    # The table stays until the next release: a web of this one's predecessor still writes it.
    operations = [migrations.SeparateDatabaseAndState(state_operations=[migrations.DeleteModel("Attempts")])]
