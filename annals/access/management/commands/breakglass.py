"""`annals breakglass NAME`: a local superuser for the day on which no provider answers."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError


class Command(BaseCommand):
    help = (
        "Print a link that logs a local superuser in, for the day on which no identity provider "
        "answers. It works once, for ten minutes. The login is logged and alerted."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", metavar="NAME", help="the login, for example breakglass")
        parser.add_argument("--remove", action="store_true", help="switch this login off instead")

    def handle(self, *_: Any, **options: Any) -> None:
        from django.core.exceptions import ValidationError
        from django.utils import timezone

        from annals.access.local_logins import link, make_break_glass, switch_off
        from annals.access.models import BreakGlass

        name = options["name"]
        if options["remove"]:
            found = BreakGlass.objects.filter(user__username=name).first()
            if found is None:
                raise CommandError(f"There is no break-glass login {name!r}.")
            switch_off(found.user)
            self.stderr.write(
                f"{name} is switched off, and its sessions have ended. The login itself stays: what"
                " it did is in the access journal and in the admin's log under this name."
            )
            return
        try:
            user = make_break_glass(name, timezone.now())
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from None
        self.stdout.write(link(user))
        self.stderr.write(
            f"This link logs {name} in once, within ten minutes. Earlier links and sessions of "
            f"{name} have ended. If your browsers reach Annals at another address, replace the "
            "host."
        )
