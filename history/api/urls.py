"""The addresses under /api/v1/. An id may hold slashes, so the longer addresses come first."""

from collections.abc import Callable

from django.http import HttpResponseBase
from django.urls import path, re_path
from django.utils.decorators import decorator_from_middleware

from history.addresses import APPLICATION_ID, ID
from history.api import applications, trace, views
from history.api.call import Call
from history.api.compression import Compression
from history.entities import ROOT

ENTITY = f"history/<str:entity>/{ID}"
APPLICATION = f"applications/{APPLICATION_ID}"
_compressed = decorator_from_middleware(Compression)


def _call(view: type[Call]) -> Callable[..., HttpResponseBase]:
    """The view, compressed where the client takes it."""
    return _compressed(view.as_view())


# Where all kinds stand alone there are none.
of_applications = [
    path(f"{APPLICATION}/history", _call(applications.ApplicationTimeline)),
    path(f"{APPLICATION}/at", _call(applications.ApplicationAt)),
]
urlpatterns = [
    path(f"{ENTITY}/compare", _call(views.Compare)),
    path(f"{ENTITY}/at", _call(views.At)),
    path(f"{ENTITY}/fields", _call(views.Field)),
    path(f"{ENTITY}/blame", _call(views.Blame)),
    path(f"{ENTITY}/versions", _call(views.Versions)),
    path(f"{ENTITY}/versions/<str:version>", _call(views.SingleVersion)),
    path(ENTITY, _call(views.Timeline)),
    *(of_applications if ROOT else []),
    path("search", _call(applications.Search)),
    path("trace", _call(trace.Trace)),
    re_path("", _call(views.UnknownAddress)),
]
