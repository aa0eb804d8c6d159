"""The addresses of the outbox: `path("outbox/", include("outbox.urls"))`."""

from django.apps import apps
from django.db import router
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.http import require_safe

from outbox import status
from outbox.inbox import status as inbox_status
from outbox.inbox.models import Waiting
from outbox.models import Document


@require_safe
def metrics(_: HttpRequest) -> HttpResponse:
    """Counts and names of relays and handlers; nothing of documents or messages."""
    lines: list[str] = []
    if apps.is_installed("outbox"):
        lines += status.metrics(router.db_for_read(Document))
    if apps.is_installed("outbox.inbox"):
        lines += inbox_status.metrics(router.db_for_read(Waiting))
    return HttpResponse("".join(lines), content_type=status.CONTENT_TYPE)


app_name = "outbox"
urlpatterns = [path("metrics", metrics, name="metrics")]
