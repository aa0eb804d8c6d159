"""Passwords are for the demo only: failed logins are not counted."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("access", "0007_no_quota")]

    operations = [migrations.DeleteModel("Attempts")]
