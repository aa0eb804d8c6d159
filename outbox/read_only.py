"""Lists of Django's admin in which nobody adds, changes or deletes rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin import helpers
from django.contrib.admin.exceptions import DisallowedModelAdminLookup
from django.core.exceptions import BadRequest, ValidationError
from django.http import HttpRequest, HttpResponseBadRequest

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

    def lookup_allowed(self, lookup: str, value: str, request: Any = None) -> bool:  # noqa: ARG002
        """Whether a filter of the page makes this lookup. Django takes any, of every field: the
        database or the field refuses many values, as `state__regex=(`, and the page fails."""
        return any(lookup in _parameters(each) for each in self.get_list_filter(request))

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        """The list. Filters and actions give their values to the database as they come, which
        refuses NUL: 400. So is a lookup that no filter makes, and a chosen row that no row is."""
        if _have_nul(request.GET.lists()) or _have_nul(request.POST.lists()):
            raise BadRequest
        try:
            for key in request.POST.getlist(helpers.ACTION_CHECKBOX_NAME):
                self.opts.pk.to_python(key)
            return super().changelist_view(request, extra_context)
        except (DisallowedModelAdminLookup, ValidationError) as refused:
            why = "; ".join(getattr(refused, "messages", [str(refused)]))
            return HttpResponseBadRequest(why, content_type="text/plain; charset=utf-8")

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        """The row, or None; no key of a row has NUL."""
        return None if "\0" in object_id else super().get_object(request, object_id, from_field)


def _parameters(one: Any) -> frozenset[str]:
    """What a filter of a list puts into the address: of a field, or with a parameter of its own."""
    if isinstance(one, str):
        return frozenset({one, f"{one}__exact", f"{one}__isnull"})
    return frozenset({one.parameter_name})


def _have_nul(given: Iterable[tuple[str, list[Any]]]) -> bool:
    return any("\0" in f"{name}{value}" for name, values in given for value in values)
