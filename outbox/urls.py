"""The URLs of the outbox: `path("outbox/", include("outbox.urls"))`."""

from django.apps import apps
from django.db import router
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.http import require_safe

from outbox.inbox import status as inbox_status
from outbox.inbox.models import Waiting
from outbox.models import Document
from outbox.operations import status


@require_safe
def show_metrics(_: HttpRequest) -> HttpResponse:
    """Show the metrics: counts, and names of relays and handlers, but no data of documents."""
    lines: list[str] = []
    if apps.is_installed("outbox"):
        lines += status.format_metrics(router.db_for_read(Document))
    if apps.is_installed("outbox.inbox"):
        lines += inbox_status.format_metrics(router.db_for_read(Waiting))
    return HttpResponse("".join(lines), content_type=status.CONTENT_TYPE)


app_name = "outbox"
urlpatterns = [path("metrics", show_metrics, name="metrics")]
