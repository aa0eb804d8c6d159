"""The page that shows one masked value of one version to a login that gives a reason."""

import logging

from django import forms
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from history import timeline
from history.admin.components import links, page_head
from history.admin.components.cards import make_field_names
from history.admin.components.change_rows import get_step_names
from history.admin.components.values import ShownValue, make_value
from history.admin.pages.permission import require_history_permission
from history.common.plain_text import count_letters
from history.documents.exactjson import dumps
from history.kinds.entities import EntityKind
from history.policy import masking
from history.policy.access_record import UnmaskedValue
from history.timeline import HistoryReader, Version

log = logging.getLogger(__name__)

SHORTEST_REASON, LONGEST_REASON = 5, 500
# How many visible characters the reason must have.
FEWEST_LETTERS = 3


class ReasonForm(forms.Form):
    """Asks why somebody must see a value. An empty `path` means the whole document."""

    path = forms.CharField(strip=False, required=False, widget=forms.HiddenInput)
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        min_length=SHORTEST_REASON,
        max_length=LONGEST_REASON,
        widget=forms.TextInput(attrs={"autocomplete": "off", "autofocus": True}),
    )

    def __init__(self, data: object, **kwargs: object) -> None:
        super().__init__(data, label_suffix="", **kwargs)  # type: ignore[arg-type]

    def clean_reason(self) -> str:
        """Refuse a reason with fewer than FEWEST_LETTERS visible letters."""
        reason: str = self.cleaned_data["reason"]
        if count_letters(reason) < FEWEST_LETTERS:
            raise forms.ValidationError(_("Give the reason in words."))
        return reason


@require_http_methods(["GET", "HEAD", "POST"])
@require_history_permission
def show_unmasked(
    request: HttpRequest, reader: HistoryReader, entity: EntityKind, id: str, version: int
) -> HttpResponse:
    """Ask for the reason (GET with ?path=), or show the value (POST with path and reason).

    ?at= is the moment of the version. The page with the value has no address of its own: to see the
    value again, a login must give a reason again. Annals records each display of the value.
    """
    if not masking.has_explicit_permission(request.user, masking.UNMASK):
        raise PermissionDenied
    parameters = request.POST if request.method == "POST" else request.GET
    path, moment = parameters.get("path", ""), links.parse_moment(request.GET.get(links.AT))
    form = ReasonForm(request.POST if request.method == "POST" else None, initial={"path": path})
    newest = timeline.fetch_version(reader, entity, id, version, frozenset(), moment)
    hidden = timeline.find_masked_values(entity, newest.data)
    if path not in hidden:
        raise timeline.NoVersionError(f"nothing is masked at {path}")
    value = _unmask_value(request, reader, form, newest) if form.is_bound else None
    names = get_step_names(path, newest.data, make_field_names(entity)) or [_("the whole document")]
    return render(
        request,
        "history/unmask.html",
        {
            **page_head.make_context(request, reader, entity, id, newest),
            "trail": names[:-1],
            "label": names[-1],
            "path": path,
            "masked": masking.shorten_token(hidden[path]),
            "value": value,
            "form": form,
            "shortest": SHORTEST_REASON,
            "letters": FEWEST_LETTERS,
            "back_url": links.build_snapshot_url(entity, id, version, newest.updated_at),
        },
    )


def _unmask_value(
    request: HttpRequest, reader: HistoryReader, form: ReasonForm, version: Version
) -> ShownValue | None:
    """Record the unmasking and return the value; None without a sufficient reason."""
    if not form.is_valid():
        return None
    reason = form.cleaned_data["reason"]
    path = form.cleaned_data["path"]

    def record() -> None:
        access = reader.viewer.access
        access.unmasked, access.reason = UnmaskedValue(path, version.updated_at), reason
        # Written as JSON, which escapes line breaks: a reason cannot begin a new line of the log.
        document = f"{version.entity.name} {version.id}"
        names = (request.user.get_username(), document, path, reason)
        user, document, quoted_path, quoted_reason = (dumps(name).decode() for name in names)
        text = "unmasked by %s: %s version %d path %s, reason %s"
        log.warning(text, user, document, version.version, quoted_path, quoted_reason)

    value = timeline.unmask_value(reader, version, path, record)
    return make_value(value, make_field_names(version.entity), path)
