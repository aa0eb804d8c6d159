"""Prepares the database of the demo in one process: `python -m annals.demo.tables ANNALS_HOME`.

It makes the tables, the logins of the processes, the partitions, the simulated people and the marks
of sensitive fields.
"""

import os
import sys
from pathlib import Path

import django
from django.core.management import call_command

from annals.demo import vocabulary
from annals.embedded import get_database_server, logins

MARKS = Path(__file__).with_name("sensitive-fields.json")


def main(home: Path) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "annals.settings")
    django.setup()
    call_command("migrate", verbosity=0)
    postgres = get_database_server(home)
    login_options = [
        ("--login", role, login, str(postgres.get_password_file(login)))
        for role, login in (("web", logins.WEB), ("consumer", logins.CONSUMER))
    ]
    call_command("grants", "--apply", *(word for option in login_options for word in option))
    call_command("partitions", "maintain", verbosity=0)
    call_command("people", "import", str(vocabulary.PEOPLE))
    call_command("labels", "load", str(MARKS))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
