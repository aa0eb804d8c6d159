"""The pages of operators on the admin site."""

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from annals.operations import days, screen
from history.admin.site.admin_site import AnnalsSite

_site: AnnalsSite = admin.site  # type: ignore[assignment] # see history.admin.site.apps

_site.add_screen(
    address="operations/",
    name="operations",
    title=_("Operations: is all well?"),
    permission="ingest.view_ledger",
    view=screen.show_operations,
    is_start_page=True,
)
_site.add_screen(
    address="days/",
    name="days",
    title=_("Days: kept, sealed, archived"),
    permission="ingest.view_ledger",
    view=days.show_days,
)
