"""The base class of the admin pages, which list rows without letting people edit them."""

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.http import HttpRequest

if TYPE_CHECKING:
    _Admin = admin.ModelAdmin[Any]
else:  # the class has no parameters at run time
    _Admin = admin.ModelAdmin


class ReadOnlyAdmin(_Admin):
    """An admin page that lists rows. People can run actions on the rows, but not edit them."""

    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Allow actions but not forms: a form would write back a row that has changed since."""
        return obj is None and super().has_change_permission(request)
