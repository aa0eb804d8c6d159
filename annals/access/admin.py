"""The screen of the access journal, and the link to it from an entity."""

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from annals.access.journal import screen
from annals.access.roles import JOURNAL
from history.admin.site.access import was_given
from history.admin.site.admin_site import AnnalsSite, SubjectLink

_site: AnnalsSite = admin.site  # type: ignore[assignment] # see history.admin.site.apps

_site.add_screen(
    address="journal/",
    name="journal",
    title=_("Access journal: who looked at what"),
    permission=JOURNAL,
    view=screen.page,
    superusers=False,
)
_site.subject_links.append(
    SubjectLink(_("Who looked at this"), was_given(JOURNAL), screen.address_for)
)
