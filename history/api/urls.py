"""The addresses under /api/v1/. An id may have slashes, so longer addresses come first."""

from django.urls import path, re_path

from history.api import applications, changes, trace, views
from history.common.addresses import APPLICATION_ID, ID
from history.kinds.entities import ROOT

ENTITY = f"history/<str:entity>/{ID}"
APPLICATION = f"applications/{APPLICATION_ID}"

# An installation without a main kind has no applications, and none of these addresses.
of_applications = [
    path(f"{APPLICATION}/history", applications.ApplicationTimelineView.as_view()),
    path(f"{APPLICATION}/at", applications.ApplicationAtView.as_view()),
]
urlpatterns = [
    path(f"{ENTITY}/compare", views.CompareView.as_view()),
    path(f"{ENTITY}/at", views.VersionAtView.as_view()),
    path(f"{ENTITY}/fields", views.FieldHistoryView.as_view()),
    path(f"{ENTITY}/blame", views.BlameView.as_view()),
    path(f"{ENTITY}/versions", views.VersionsView.as_view()),
    path(f"{ENTITY}/versions/<str:version>", views.VersionView.as_view()),
    path(ENTITY, views.TimelineView.as_view()),
    *(of_applications if ROOT else []),
    path("changes", changes.ChangesView.as_view()),
    path("search", applications.SearchView.as_view()),
    path("trace", trace.TraceView.as_view()),
    re_path("", views.UnknownAddressView.as_view()),
]
