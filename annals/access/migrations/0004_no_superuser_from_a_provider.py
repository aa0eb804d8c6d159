"""No person of a provider is a superuser: the roles have their permissions by name, and the web's
database login cannot take the flag away."""

from typing import Any

from django.db import migrations


def take_away(apps: Any, _editor: Any) -> None:
    users = apps.get_model("auth", "User")
    users.objects.filter(identity__isnull=False, is_superuser=True).update(is_superuser=False)


class Migration(migrations.Migration):
    dependencies = [("access", "0003_what_was_opened")]
    operations = [migrations.RunPython(take_away, migrations.RunPython.noop)]
