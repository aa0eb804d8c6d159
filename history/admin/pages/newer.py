"""Counts the versions since a timeline was shown. annals.js asks for this every half minute."""

from datetime import timedelta

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.utils.translation import ngettext

from history import timeline
from history.admin.components import links, page_head
from history.admin.pages.permission import require_history_permission
from history.kinds.entities import EntityKind
from history.timeline import HistoryReader, VersionFilters

MAX_COUNTED = 50


@require_history_permission
def count_newer(
    request: HttpRequest, reader: HistoryReader, entity: EntityKind, id: str
) -> HttpResponse:
    """Count the versions of an opened document that are newer than ?since=.

    The access journal gets no entry for this: it has one for the opened page.
    """
    since = links.parse_moment(request.GET.get(links.SINCE))
    if since is None or (entity, id) not in page_head.list_opened(request):
        raise Http404
    try:
        filters = VersionFilters(since=since + timedelta(microseconds=1))
        whole = links.WHOLE in request.GET
        query = {"filters": filters, "page_size": MAX_COUNTED, "include": frozenset()}
        page = page_head.fetch_page(reader, entity, id, whole=whole, **query)
    except (timeline.NotFoundError, OverflowError):  # ?since= may be the last possible moment
        return JsonResponse({"text": ""})
    n = len(page.versions)
    text = ngettext("{n} newer version: show", "{n} newer versions: show", n)
    count_text = f"{n}+" if page.next_token else n
    return JsonResponse({"text": text.format(n=count_text) if n else ""})
