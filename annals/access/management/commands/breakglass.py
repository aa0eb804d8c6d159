"""`annals breakglass NAME`: a local superuser for the day on which no provider answers."""

import os
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError


class Command(BaseCommand):
    help = (
        "Print a link that logs a local superuser in, for the day on which no identity provider "
        "answers. It works once, for ten minutes. The login is logged and raises an alert."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", metavar="NAME", help="the login, for example breakglass")
        parser.add_argument("--remove", action="store_true", help="switch this login off instead")

    def handle(self, *_: Any, **options: Any) -> None:
        from django.conf import settings
        from django.core.exceptions import ValidationError
        from django.db import transaction
        from django.utils import timezone

        from annals.access.local_logins import (
            HOSTS,
            create_break_glass_link,
            create_break_glass_login,
            disable_break_glass_login,
            get_public_host,
        )
        from annals.access.models import BreakGlass

        name = options["name"]
        if options["remove"]:
            break_glass = BreakGlass.objects.filter(user__username=name).first()
            if break_glass is None:
                raise CommandError(f"There is no break-glass login {name!r}.")
            disable_break_glass_login(break_glass.user)
            self.stderr.write(
                f"{name} is switched off, and its sessions have ended. The login itself stays: what"
                " it did is in the access journal and in the admin's log under this name."
            )
            return
        if get_public_host() is None:
            hosts = os.environ.get(HOSTS, "").strip()
            fault = f"{HOSTS}={hosts} names no host" if hosts else f"{HOSTS} is not set"
            raise CommandError(
                f"{fault}, so the link would have no host. No login was created. Set {HOSTS} to "
                "the host under which browsers reach Annals, such as annals.bank.example. If the "
                "web server has ANNALS_HTTPS, set ANNALS_HTTPS to the same value. Then run this "
                "command again."
            )
        try:
            with transaction.atomic():  # no superuser without its link
                address = create_break_glass_link(create_break_glass_login(name, timezone.now()))
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from None
        self.stdout.write(address)
        self.stderr.write(
            f"This link logs {name} in once, within ten minutes. Earlier links and sessions of "
            f"{name} have ended. If your browsers reach Annals at another address, replace the "
            "host and the port."
        )
        if not settings.ANNALS.https and not settings.ANNALS.demo:
            self.stderr.write(
                "ANNALS_HTTPS is not set here: if the web has it, replace http:// by https://."
            )
