"""An alert on the access journal replaces the quota, which counted here for an hour."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("access", "0006_journal_columns_have_defaults")]

    operations = [migrations.DeleteModel("Opened")]
