"""What `annals breakglass` does."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from annals.access.local_logins import link, make_break_glass, switch_off
from annals.access.models import BreakGlass


def run(command: BaseCommand, **options: Any) -> None:
    """Make the login or switch it off. options: as the command declares them. Raises
    CommandError."""
    name = options["name"]
    if options["remove"]:
        found = BreakGlass.objects.filter(user__username=name).first()
        if found is None:
            raise CommandError(f"There is no break-glass login {name!r}.")
        switch_off(found.user)
        command.stderr.write(
            f"{name} is switched off, and its sessions have ended. The login itself stays: what"
            " it did is in the access journal and in the admin's log under this name."
        )
        return
    try:
        user = make_break_glass(name, timezone.now())
    except ValidationError as error:
        raise CommandError(" ".join(error.messages)) from None
    command.stdout.write(link(user))
    command.stderr.write(
        f"This link logs {name} in once, within ten minutes. Earlier links and sessions of {name}"
        " have ended. If your browsers reach Annals at another address, replace the host."
    )
