"""Which address goes where."""

from django.contrib import admin
from django.urls import include, path

from history.api.schema import Docs, Schema
from ingest.completeness.api import Completeness

urlpatterns = [
    path("admin/", admin.site.urls),
    path("api/schema/", Schema.as_view(), name="schema"),
    path("api/docs/", Docs.as_view(), name="docs"),
    path("api/v1/completeness", Completeness.as_view()),
    path("api/v1/", include("history.api.urls")),
]
