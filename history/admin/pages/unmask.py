"""One masked value of one version, shown to somebody who says why."""

import logging

from django import forms
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from history import masking, timeline
from history.admin.pages.view import may_view_history
from history.admin.parts import heads, links
from history.admin.parts.cards import fields_of
from history.admin.parts.change_rows import steps
from history.admin.parts.values import Value, readable
from history.base.plain_text import letters
from history.documents.exactjson import dumps
from history.entities import Entity
from history.requests.accesses import Unmasked
from history.timeline import Reader, Version

log = logging.getLogger(__name__)

SHORTEST_REASON, LONGEST_REASON = 5, 500
# Of the reason's characters that can be seen.
FEWEST_LETTERS = 3


class ReasonForm(forms.Form):
    """Which value, and why somebody must see it. path: empty for the whole document."""

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
        """A reason that nobody can read is none."""
        reason: str = self.cleaned_data["reason"]
        if letters(reason) < FEWEST_LETTERS:
            raise forms.ValidationError(_("Give the reason in words."))
        return reason


@require_http_methods(["GET", "HEAD", "POST"])
@may_view_history
def page(
    request: HttpRequest, reader: Reader, entity: Entity, id: str, version: int
) -> HttpResponse:
    """GET ?path= asks for the reason, POST with path and reason shows the value; ?at= is as for the
    snapshot. The value has no address of its own; to show it again is recorded again."""
    if not masking.holds(request.user, masking.UNMASK):
        raise PermissionDenied
    asked = request.POST if request.method == "POST" else request.GET
    path, made = asked.get("path", ""), links.parse_moment(request.GET.get(links.AT))
    form = ReasonForm(request.POST if request.method == "POST" else None, initial={"path": path})
    newest = timeline.version(reader, entity, id, version, frozenset(), made)
    hidden = timeline.masked_values(entity, newest.data)
    if path not in hidden:
        raise timeline.NoVersionError(f"nothing is masked at {path}")
    value = _unmasked(request, reader, form, newest) if form.is_bound else None
    names = steps(path, newest.data, fields_of(entity)) or [_("the whole document")]
    return render(
        request,
        "history/unmask.html",
        {
            **heads.context(request, reader, entity, id, newest),
            "trail": names[:-1],
            "label": names[-1],
            "path": path,
            "masked": masking.shown(hidden[path]),
            "value": value,
            "form": form,
            "shortest": SHORTEST_REASON,
            "letters": FEWEST_LETTERS,
            "back_url": links.snapshot(entity, id, version, newest.updated_at),
        },
    )


def _unmasked(
    request: HttpRequest, reader: Reader, form: ReasonForm, version: Version
) -> Value | None:
    """The value, after its unmasking is recorded; None without a sufficient reason."""
    if not form.is_valid():
        return None
    reason = form.cleaned_data["reason"]
    path = form.cleaned_data["path"]

    def record() -> None:
        look = reader.viewer.look
        look.unmasked, look.reason = Unmasked(path, version.updated_at), reason
        # As JSON: a line break in the reason cannot begin a line of its own.
        whose = f"{version.entity.name} {version.id}"
        names = (request.user.get_username(), whose, path, reason)
        user, whose, where, why = (dumps(each).decode() for each in names)
        text = "unmasked by %s: %s version %d path %s, reason %s"
        log.warning(text, user, whose, version.version, where, why)

    value = timeline.unmask(reader, version, path, record)
    return readable(value, fields_of(version.entity), path)
