"""`manage.py breakglass NAME`: a local superuser for the day on which no provider answers."""

from __future__ import annotations

import secrets
from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from annals.access.models import BreakGlass
from annals.access.passwords import make_break_glass, switch_off


class Command(BaseCommand):
    help = (
        "Make a local superuser for the day on which no identity provider answers, or give it a "
        "new password. The password is printed once. Each login with it is logged and alerted."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", metavar="NAME", help="the login, for example breakglass")
        parser.add_argument("--remove", action="store_true", help="switch this login off instead")

    def handle(self, **options: Any) -> None:
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
        password = secrets.token_urlsafe(24)
        try:
            make_break_glass(name, password, timezone.now())
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from None
        self.stdout.write(password)
        self.stderr.write(
            f"This is the password of {name}. Keep it where two people are needed to get it; it is "
            "not shown again."
        )
