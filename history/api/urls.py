"""The addresses under /api/v1/. An id may have slashes, so longer addresses come first."""

from collections.abc import Callable

from django.http import HttpResponseBase
from django.urls import path, re_path
from django.utils.decorators import decorator_from_middleware

from history.api import applications, changes, trace, views
from history.api.base_view import ApiView
from history.api.compression import Compression
from history.common.addresses import APPLICATION_ID, ID
from history.kinds.entities import ROOT

ENTITY = f"history/<str:entity>/{ID}"
APPLICATION = f"applications/{APPLICATION_ID}"
_compressed = decorator_from_middleware(Compression)


def _make_view(view: type[ApiView]) -> Callable[..., HttpResponseBase]:
    """Return the view function, which compresses its answers if the client prefers that."""
    return _compressed(view.as_view())


# An installation without a main kind has no applications, and none of these addresses.
of_applications = [
    path(f"{APPLICATION}/history", _make_view(applications.ApplicationTimelineView)),
    path(f"{APPLICATION}/at", _make_view(applications.ApplicationAtView)),
]
urlpatterns = [
    path(f"{ENTITY}/compare", _make_view(views.CompareView)),
    path(f"{ENTITY}/at", _make_view(views.VersionAtView)),
    path(f"{ENTITY}/fields", _make_view(views.FieldHistoryView)),
    path(f"{ENTITY}/blame", _make_view(views.BlameView)),
    path(f"{ENTITY}/versions", _make_view(views.VersionsView)),
    path(f"{ENTITY}/versions/<str:version>", _make_view(views.VersionView)),
    path(ENTITY, _make_view(views.TimelineView)),
    *(of_applications if ROOT else []),
    path("changes", _make_view(changes.ChangesView)),
    path("search", _make_view(applications.SearchView)),
    path("trace", _make_view(trace.TraceView)),
    re_path("", _make_view(views.UnknownAddressView)),
]
