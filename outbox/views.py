"""The page of metrics, for Prometheus."""

from django.db import router
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from outbox import status
from outbox.metrics import CONTENT_TYPE, render
from outbox.models import Document


@require_safe
def metrics(_: HttpRequest) -> HttpResponse:
    """Counts and names of relays; nothing of documents."""
    found = status.read(router.db_for_read(Document))
    return HttpResponse(render(found), content_type=CONTENT_TYPE)
