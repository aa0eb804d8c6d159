"""Lists of Django's admin in which nobody adds, changes or deletes rows."""

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.http import HttpRequest

if TYPE_CHECKING:
    _Admin = admin.ModelAdmin[Any]
else:  # the class has no parameters at run time
    _Admin = admin.ModelAdmin


class ReadOnly(_Admin):
    """Processes write the rows; a person has the actions of the list."""

    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Only the actions: saving a form would write back a row that has changed since."""
        return obj is None and super().has_change_permission(request)
