"""The support screens' own admin site: history first, then the models a login may see."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import URLPattern, URLResolver, path, register_converter
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST
from django.views.i18n import set_language

from history.admin import converters
from history.admin.access import PERMISSION

register_converter(converters.EntityName, "entity")


class AnnalsSite(admin.AdminSite):
    """Django's admin with the history screens in front.

    The version tables have composite primary keys, which ModelAdmin refuses; their screens are
    views of this site instead. All of them need PERMISSION on top of a log-in.
    """

    site_header = "Annals"
    site_title = "Annals"
    index_title = _("History")
    site_url = None
    enable_nav_sidebar = False

    def __init__(self, name: str = "admin") -> None:
        super().__init__(name)
        # Imported late: the class is loaded before the models are.
        from history.admin.catalogues import FieldLabelAdmin, PersonAdmin
        from history.models import FieldLabel, Person

        self.register(Person, PersonAdmin)
        self.register(FieldLabel, FieldLabelAdmin)

    def get_urls(self) -> list[URLResolver | URLPattern]:
        # Imported late, as above.
        from history.admin import compare, search, snapshot, timeline

        views = [
            path("history/", search.found, name="history_search"),
            path(
                "history/<entity:entity>/<path:id>/compare/", compare.page, name="history_compare"
            ),
            path(
                "history/<entity:entity>/<path:id>/versions/<int:version>/",
                snapshot.page,
                name="history_snapshot",
            ),
            path("history/<entity:entity>/<path:id>/", timeline.page, name="history_timeline"),
        ]
        for view in views:
            view.callback = self.admin_view(view.callback)
        switch = path("language/", require_POST(set_language), name="language")
        return [switch, *views, *super().get_urls()]

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        return {
            **super().each_context(request),
            "may_view_history": request.user.has_perm(PERMISSION),
        }

    def index(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> TemplateResponse:
        # Imported late, as above.
        from history.admin.first import first_page

        return super().index(request, {**first_page(request), **(extra_context or {})})
