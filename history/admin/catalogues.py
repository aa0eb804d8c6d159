"""What admins keep up: full names of logins, and what fields are called."""

from typing import TYPE_CHECKING

from django.contrib import admin

from history.models import FieldLabel, Person

if TYPE_CHECKING:
    PeopleAdmin = admin.ModelAdmin[Person]
    LabelsAdmin = admin.ModelAdmin[FieldLabel]
else:  # Django's class takes no parameters where it runs
    PeopleAdmin = LabelsAdmin = admin.ModelAdmin


@admin.register(Person)
class PersonAdmin(PeopleAdmin):
    list_display = ("login", "full_name", "kind")
    list_filter = ("kind",)
    search_fields = ("login", "full_name")
    ordering = ("login",)
    list_per_page = 100
    show_full_result_count = False


@admin.register(FieldLabel)
class FieldLabelAdmin(LabelsAdmin):
    list_display = ("path", "entity", "russian", "english", "kind")
    list_display_links = ("path",)
    list_filter = ("entity", "kind")
    search_fields = ("path", "russian", "english")
    list_per_page = 100
    show_full_result_count = False
