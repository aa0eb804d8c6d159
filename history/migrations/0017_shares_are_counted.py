"""Estimates with variances are recorded anew, as counts, by the next `annals share`."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("history", "0016_child_homes")]
    operations = [migrations.RunSQL("DELETE FROM day_share", migrations.RunSQL.noop)]
