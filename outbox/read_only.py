"""Lists of Django's admin in which nobody adds, changes or deletes rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.core.exceptions import BadRequest
from django.http import HttpRequest

if TYPE_CHECKING:
    _Admin = admin.ModelAdmin[Any]
else:  # the class has no parameters at run time
    _Admin = admin.ModelAdmin


class ReadOnly(_Admin):
    """Processes write the rows; a person has the actions of the list."""

    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002
        """No."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        """No."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Only the actions: saving a form would write back a row that has changed since."""
        return obj is None and super().has_change_permission(request)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:  # noqa: ARG002
        """All fields."""
        return list(self.fields or ())  # type: ignore[arg-type]

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        """The list. Filters and actions give their values to the database as they come, which
        refuses NUL: 400."""
        if _have_nul(request.GET.lists()) or _have_nul(request.POST.lists()):
            raise BadRequest
        return super().changelist_view(request, extra_context)

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        """The row, or None; no key of a row has NUL."""
        return None if "\0" in object_id else super().get_object(request, object_id, from_field)


def _have_nul(given: Iterable[tuple[str, list[Any]]]) -> bool:
    return any("\0" in f"{name}{value}" for name, values in given for value in values)
