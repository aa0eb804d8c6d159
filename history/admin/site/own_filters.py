"""Lists of models take the filters of their own page, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.admin import ModelAdmin, helpers
from django.core.exceptions import BadRequest, ValidationError
from django.http import HttpRequest
from django.utils.text import capfirst

if TYPE_CHECKING:
    Lists = ModelAdmin[Any]
else:  # Django's class takes no parameters where it runs
    Lists = ModelAdmin


class OwnFilters(Lists):
    """Django lets the address of a list ask for any field of its model: `password__startswith`
    would read a hidden field letter by letter."""

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        """The title is the name of the list: Django's sentence has a wrong case in Russian."""
        for key in request.POST.getlist(helpers.ACTION_CHECKBOX_NAME):
            try:
                self.opts.pk.to_python(key)
            except ValidationError:  # no row has it, and Django fails on it
                raise BadRequest from None
        named = {"title": capfirst(str(self.opts.verbose_name_plural))}
        return super().changelist_view(request, named | (extra_context or {}))

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:  # noqa: ARG002
        """Whether a filter of the page makes this lookup."""
        return any(lookup in self._lookups(str(name)) for name in self.list_filter)

    def _lookups(self, name: str) -> frozenset[str]:
        """What Django's filters of this field put into the address. Raises FieldDoesNotExist."""
        related = self.opts.get_field(name).related_model
        if related is not None:
            key = related._meta.pk.name
            return frozenset({f"{name}__{key}__exact", f"{name}__isnull"})
        return frozenset({name, f"{name}__exact", f"{name}__isnull"})
