"""Registers the screens of the access journal and of logins at the admin site.

The screens of a document get a link, too. The link opens the journal's entries about the document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import admin
from django.contrib.auth import admin as _registers_its_own  # noqa: F401
from django.contrib.auth.models import Group, User
from django.db.models import Model
from django.forms import ModelForm
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from annals.access.journal import screen
from annals.access.models import BreakGlass
from annals.access.roles import JOURNAL
from history.admin.site.access import make_explicit_permission_check
from history.admin.site.admin_site import AnnalsSite, SubjectLink
from history.common.moment_filter import when

if TYPE_CHECKING:
    Users = admin.ModelAdmin[User]
else:  # Only the stubs for type checkers declare ModelAdmin as generic.
    Users = admin.ModelAdmin


class UserAdmin(Users):
    """The screen of logins. Only `is_active` can be changed on it."""

    list_display = ("username", "last_name", "is_active", "is_superuser", "seen")
    list_filter = ("is_active", "is_superuser", "groups")
    search_fields = ("username", "last_name")
    ordering = ("username",)
    # Roles come from the identity provider.
    readonly_fields = (
        "username",
        "last_name",
        "is_staff",
        "is_superuser",
        "groups",
        "user_permissions",
        "seen",
        "joined",
    )
    fields = ("is_active", *readonly_fields)

    @admin.display(description=_("last login"), ordering="last_login")
    def seen(self, login: User) -> str:
        return when(login.last_login)

    @admin.display(description=_("since"))
    def joined(self, login: User) -> str:
        return when(login.date_joined)

    def _refuse(self, *_request: object, **_object: object) -> bool:
        return False

    has_add_permission = has_delete_permission = _refuse

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        """Refuse changes to a break-glass login."""
        if obj is not None and BreakGlass.objects.filter(user=obj).exists():
            return False
        return super().has_change_permission(request, obj)

    def save_model(
        self,
        request: HttpRequest,  # noqa: ARG002
        obj: Model,
        form: ModelForm[User],
        change: bool,  # noqa: ARG002
    ) -> None:
        """Write only the changed columns.

        The PostgreSQL role of the web server has the right to update only some columns.
        """
        if form.changed_data:
            obj.save(update_fields=form.changed_data)


_site: AnnalsSite = admin.site  # type: ignore[assignment] # see history.admin.site.apps

_site.add_screen(
    address="journal/",
    name="journal",
    title=_("Access journal: who looked at what"),
    permission=JOURNAL,
    view=screen.show_journal,
    superusers=False,
)
_site.subject_links.append(
    SubjectLink(
        _("Who looked at this"), make_explicit_permission_check(JOURNAL), screen.build_journal_url
    )
)

# The import above registered Django's own screens, which can create superusers and change roles.
admin.site.unregister([User, Group])
admin.site.register(User, UserAdmin)
