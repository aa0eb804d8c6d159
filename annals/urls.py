"""The URLs of the web server."""

from django.contrib import admin
from django.urls import include, path
from django.views import defaults
from django.views.generic import RedirectView

from annals.access import local_logins
from history.api import errors
from history.api.schema import Docs, Schema
from ingest.completeness.views import Completeness

# Here, and not when Django starts: a command needs no screens.
admin.autodiscover()

urlpatterns = [
    # Who types the name of the host looks for the screens.
    path("", RedirectView.as_view(url="/admin/")),
    path("admin/", admin.site.urls),
    path("break-glass/<str:name>/<str:token>/", local_logins.enter, name="break-glass"),
    path("oidc/", include("annals.access.oidc.urls")),
    path("api/schema/", Schema.as_view(), name="schema"),
    path("api/docs/", Docs.as_view(), name="docs"),
    path("api/v1/completeness", Completeness.as_view()),
    path("api/v1/", include("history.api.urls")),
]

handler400 = errors.handler(400, "bad_request", defaults.bad_request)
handler403 = errors.handler(403, "no_permission", defaults.permission_denied)
handler404 = errors.handler(404, "unknown_address", defaults.page_not_found)
handler500 = errors.handler(500, "internal_error", defaults.server_error)
