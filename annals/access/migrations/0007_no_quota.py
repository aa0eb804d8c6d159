"""An alert on the access journal replaces the quota, which counted here for an hour."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("access", "0006_journal_columns_have_defaults")]

    # The table stays until the next release: a web of this one's predecessor still writes it.
    operations = [migrations.SeparateDatabaseAndState(state_operations=[migrations.DeleteModel("Opened")])]
