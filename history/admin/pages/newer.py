"""How many versions came since a timeline was shown. annals.js asks for it every half minute."""

from datetime import timedelta

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.utils.translation import ngettext

from history import timeline
from history.admin.pages.view import may_view_history
from history.admin.parts import heads, links
from history.entities import Entity
from history.timeline import Filters, Reader

MOST = 50


@may_view_history
def page(request: HttpRequest, reader: Reader, entity: Entity, id: str) -> HttpResponse:
    """No row of the journal: it only answers for what the login opened, which has one."""
    since = links.parse_moment(request.GET.get(links.SINCE))
    if since is None or (entity, id) not in heads.opened(request):
        raise Http404
    try:
        filters = Filters(since=since + timedelta(microseconds=1))
        whole = links.WHOLE in request.GET
        asked = {"filters": filters, "page_size": MOST, "include": frozenset()}
        found = heads.versions(reader, entity, id, whole=whole, **asked)
    except (timeline.NotFoundError, OverflowError):  # after the last moment there is nothing
        return JsonResponse({"text": ""})
    n = len(found.versions)
    text = ngettext("{n} newer version: show", "{n} newer versions: show", n)
    shown = f"{n}+" if found.next_token else n
    return JsonResponse({"text": text.format(n=shown) if n else ""})
