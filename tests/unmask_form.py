"""The form that asks why a masked value is to be shown."""

import re

from django.test import Client


def opened(client: Client, address: str) -> dict[str, str]:
    """What the form at this address sends with it: it is good for one value."""
    page = client.get(address).content.decode()
    (once,) = re.findall(r'name="once" value="([^"]+)"', page)
    return {"once": once}
