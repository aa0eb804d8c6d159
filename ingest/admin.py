"""Ingest's screens: the ledger and the quarantine, to be looked at only."""

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from ingest.completeness import views as completeness
from ingest.models import Quarantined
from ingest.quarantine.admin import QuarantinedAdmin

admin.site.register(Quarantined, QuarantinedAdmin)
admin.site.add_screen(  # type: ignore[attr-defined] # the site is history.admin.site.admin_site.AnnalsSite
    address="completeness/",
    name="completeness",
    title=_("Completeness: what became of every message"),
    permission="ingest.view_completeness",
    view=completeness.page,
)
