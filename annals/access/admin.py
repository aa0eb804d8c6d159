"""The screen of the access journal, the link to it from an entity, and the logins."""

from django.contrib import admin
from django.contrib.auth import admin as _registers_its_own  # noqa: F401
from django.contrib.auth.models import Group, User
from django.utils.translation import gettext_lazy as _

from annals.access.journal import screen
from annals.access.roles import JOURNAL
from annals.access.user_admin import UserAdmin
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

# The import has registered Django's own screens, which make superusers and change roles.
admin.site.unregister([User, Group])
admin.site.register(User, UserAdmin)
