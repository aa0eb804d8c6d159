"""Registers the pages of ingest: completeness, the quarantine, and the form to retry or discard."""

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from history.admin.site.admin_site import AnnalsSite
from ingest.completeness import views as completeness
from ingest.models import Quarantined
from ingest.quarantine import screen
from ingest.quarantine.admin import QuarantinedAdmin

admin.site.register(Quarantined, QuarantinedAdmin)
_site: AnnalsSite = admin.site  # type: ignore[assignment] # see history.admin.site.apps
_site.add_screen(
    address="quarantine/",
    name="quarantine",
    title=_("Quarantine: messages that could not be stored"),
    permission="ingest.view_quarantined",
    view=screen.show_quarantine,
)
_site.add_screen(
    address="quarantine/ask/",
    name="quarantine_ask",
    title="",
    permission=screen.ASK_PERMISSION,
    view=screen.request_action,
    has_form=True,
)
_site.add_screen(
    address="completeness/",
    name="completeness",
    title=_("Completeness: what became of every message"),
    permission="ingest.view_completeness",
    view=completeness.show_completeness,
)
