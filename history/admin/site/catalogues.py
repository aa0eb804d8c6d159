"""The models that admins edit: full names of logins, labels of fields."""

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from history import labels
from history.models import FieldLabel, Person

if TYPE_CHECKING:
    PeopleAdmin = admin.ModelAdmin[Person]
    LabelsAdmin = admin.ModelAdmin[FieldLabel]
else:  # Django's class takes no parameters where it runs
    PeopleAdmin = LabelsAdmin = admin.ModelAdmin


class PersonAdmin(PeopleAdmin):
    """For one or two people; `annals people import` loads a file."""

    list_display = ("login", "full_name", "kind")
    list_filter = ("kind",)
    search_fields = ("login", "full_name")
    ordering = ("login",)
    list_per_page = 100
    show_full_result_count = False

    def save_model(self, request: HttpRequest, obj: Person, form: Any, change: bool) -> None:
        """What somebody saves here, no login changes any more."""
        obj.written_by = ""
        super().save_model(request, obj, form, change)


class FieldLabelForm(forms.ModelForm):  # type: ignore[type-arg]
    """Refuses what the catalogue cannot use."""

    def clean(self) -> dict[str, Any]:
        given: dict[str, Any] = super().clean() or {}
        entity, path, kind = (given.get(name, "") for name in ("entity", "path", "kind"))
        if problems := labels.problems(entity, path, kind, bool(given.get("sensitive"))):
            raise forms.ValidationError(problems)
        return given


class FieldLabelAdmin(LabelsAdmin):
    form = FieldLabelForm
    list_display = ("path", "entity", "russian", "english", "kind", "sensitive")
    list_display_links = ("path",)
    list_filter = ("entity", "kind", "sensitive")
    search_fields = ("path", "russian", "english")
    list_per_page = 100
    show_full_result_count = False
