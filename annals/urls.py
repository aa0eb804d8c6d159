"""The URLs of the web server."""

from django.contrib import admin
from django.urls import include, path
from django.views import defaults
from django.views.generic import RedirectView

from annals.access import local_logins
from history.api.schema import DocsView, SchemaView
from history.common import error_answers
from ingest.completeness.views import CompletenessCall

# Imported here and not when Django starts, because commands do not need the screens.
admin.autodiscover()

urlpatterns = [
    # People who type only the name of the host get the screens.
    path("", RedirectView.as_view(url="/admin/")),
    path("admin/", admin.site.urls),
    path("break-glass/<str:name>/<str:token>/", local_logins.enter_by_link, name="break-glass"),
    path("oidc/", include("annals.access.oidc.urls")),
    path("api/schema/", SchemaView.as_view(), name="schema"),
    path("api/docs/", DocsView.as_view(), name="docs"),
    path("api/v1/completeness", CompletenessCall.as_view()),
    path("api/v1/", include("history.api.urls")),
]

handler400 = error_answers.make_error_handler(400, "bad_request", defaults.bad_request)
handler403 = error_answers.make_error_handler(403, "no_permission", defaults.permission_denied)
handler404 = error_answers.make_error_handler(404, "unknown_address", defaults.page_not_found)
handler500 = error_answers.make_error_handler(500, "internal_error", defaults.server_error)
