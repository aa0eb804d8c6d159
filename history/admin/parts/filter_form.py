"""The filter above a timeline: its form, the checked filters, and the query parameters."""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django import forms
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import get_language, ngettext
from django.utils.translation import gettext_lazy as _

from history import labels, people
from history.admin.parts.cards import WHAT
from history.admin.parts.clerk import moment_words
from history.base import clock, zone
from history.entities import Entity
from history.people import Author
from history.record import AUTHOR_LENGTH, CLIENT_ID_LENGTH, ChangeType
from history.timeline import Filters

TYPES = [
    ("", _("any change")),
    *((kind.name, words) for kind, words in WHAT.items()),
]
MOST_NAMED = 5
OUTSIDE = _("Enter a year from 1 to 9999.")
ASKED = ("author", "clientId", "type", "from", "to", "path")


MOMENTS = ["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d"]


def _asking(hint: Promise, **attrs: str | Promise) -> forms.TextInput:
    """A text field. hint: what stands in it while it is empty."""
    return forms.TextInput(attrs={"autocomplete": "off", "placeholder": hint, **attrs})


class MomentField(forms.DateTimeField):
    """Also as people write it; see moment_words. Its text field is the same in every browser."""

    # annals.js puts a button with a calendar beside it.
    widget = _asking(_("yesterday 12:00"), **{"data-pick": _("Choose in a calendar")})
    default_error_messages = {"invalid": _("Not a date. Write 26.11.2026 12:00 or yesterday 12:00")}
    zone: tzinfo = UTC  # of who writes; see Zoned

    def to_python(self, value: Any) -> datetime | None:
        given = value.strip() if isinstance(value, str) else value
        today = clock.now().astimezone(self.zone).date()
        said = moment_words.parse(given, today) if isinstance(given, str) else None
        with timezone.override(UTC):  # Django refuses what a clock passes twice, or leaves out
            return said or super().to_python(given)


class Zoned(forms.Form):
    """Moments are in the browser's zone, which annals.js puts into tz; without it in that of the
    reader."""

    tz = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.label_suffix = ""
        self.use_required_attribute = False

    def full_clean(self) -> None:
        given = self.data.get("tz", "")
        here = ZoneInfo(given) if given in zone.names() else timezone.get_current_timezone()
        for field in self.fields.values():
            if isinstance(field, MomentField):
                field.zone = here
        super().full_clean()

    def moment(self, name: str) -> datetime | None:
        """A cleaned moment in UTC; None for one that is wrong: its field says why."""
        value: datetime | None = self.cleaned_data.get(name)
        field: Any = self.fields[name]
        try:
            return value.replace(tzinfo=field.zone).astimezone(UTC) if value else None
        except OverflowError:
            self.add_error(name, OUTSIDE)
            return None

    def bounds(self, low: str, high: str) -> tuple[datetime | None, datetime | None]:
        """Two cleaned moments, as moment() gives them; the second one not before the first."""
        since, until = self.moment(low), self.moment(high)
        if since and until and since > until:
            self.add_error(high, _("The end is earlier than the beginning."))
            return since, None
        return since, until


class MomentForm(Zoned):
    """The moment of which a page is. The field has the name of the API's parameter. A date without
    a time is the end of that day, today it is now. A moment to come is wrong."""

    time = MomentField(
        label=_("As of"),
        input_formats=MOMENTS,
        error_messages={"required": _("Enter a date and a time.")},
    )

    def clean(self) -> None:
        """Adds the moment: at."""
        now, given = clock.now(), self.cleaned_data.get("time")
        at = self.moment("time")
        if (
            at
            and given
            and given.time() == time()
            and not moment_words.names_time(self.data["time"])
        ):
            self.cleaned_data["time"] = given + timedelta(hours=23, minutes=59, seconds=59)
            at = max(at, min(now, self.moment("time") or now))
        self.cleaned_data["at"] = at
        if at and at > now:
            self.add_error("time", _("This moment is still to come."))


class FilterForm(Zoned):
    """All fields optional. kinds: those of which the page shows versions. strangers: what was given
    as the person or the service, where the list of people has nobody who is called so. meant: the
    fields of which one may be meant, name and path."""

    author = forms.CharField(
        label=_("Person"),
        required=False,
        max_length=AUTHOR_LENGTH,
        widget=_asking(_("name or login"), list="known-authors"),
    )
    clientId = forms.CharField(  # noqa: N815 - the API's name of the parameter
        label=_("Service"),
        required=False,
        max_length=CLIENT_ID_LENGTH,
        widget=_asking(_("name or code"), list="known-services"),
    )
    type = forms.ChoiceField(label=_("What happened"), required=False, choices=TYPES)
    path = forms.CharField(
        label=_("Field"),
        required=False,
        strip=False,  # a key may begin or end with a blank
        widget=_asking(_("name or path")),
    )

    def __init__(self, *args: Any, kinds: Iterable[Entity], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._kinds = [kind.name for kind in kinds]
        self.strangers: list[str] = []
        self.meant: Collection[tuple[str, str]] = ()
        self.fields["path"].validators = []  # Django refuses NUL, which a key may have
        for name, label in (("from", _("From")), ("to", _("Before"))):
            self.fields[name] = MomentField(label=label, required=False, input_formats=MOMENTS)
        self.order_fields(["author", "clientId", "type", "from", "to", "path", "tz"])

    def clean_author(self) -> str:
        return self._login("author")

    def clean_clientId(self) -> str:  # noqa: N802 - Django's name for it
        return self._login("clientId")

    def _login(self, name: str) -> str:
        """The login of the only one who is called so, else the text itself. Raises ValidationError
        where several are."""
        text: str = self.cleaned_data[name]
        found = people.called(text) if text else []
        if len(found) > 1:
            names = [f"{one.name} ({one.login})" for one in found[:MOST_NAMED]]
            listed = ", ".join(names) + (", …" if len(found) > MOST_NAMED else "")
            several = _("Several have this name: {found}. Enter the login.")
            raise forms.ValidationError(several.format(found=listed))
        if text and not found:
            self.strangers.append(text)
        return found[0].login if found else text

    def clean_path(self) -> str:
        """The path of the only field that is called so in these kinds; a text that begins with a
        slash is a path, and so is one without blanks in Latin letters that is no name."""
        text: str = self.cleaned_data["path"].lstrip()
        if not text or text.startswith("/"):
            return text
        found = labels.catalogue().named(text, self._kinds)
        plain = text.isascii() and not any(each.isspace() for each in text)
        if plain and not any(text.casefold() in each.names for each in found.values()):
            return f"/{text}"
        if not found:
            why = _(
                "No field has this name. Click on the name of a field in a version, or enter its "
                "path."
            )
            raise forms.ValidationError(why)
        if len(found) > 1:
            language = get_language() or "ru"
            self.meant = [(label.text(language), where) for where, label in found.items()]
            raise forms.ValidationError(_("Several fields fit. Choose one of them."))
        return next(iter(found))

    def clean(self) -> None:
        """Adds the bounds as moments: since and until."""
        since, until = self.bounds("from", "to")
        self.cleaned_data |= {"since": since, "until": until}

    def filters(self) -> Filters:
        """The filters for the timeline. An invalid condition is left out; the form shows why."""
        self.is_valid()
        kind = self.cleaned_data.get("type")
        return Filters(
            since=self.cleaned_data.get("since"),
            until=self.cleaned_data.get("until"),
            author=self.cleaned_data.get("author") or None,
            client_id=self.cleaned_data.get("clientId") or None,
            type=ChangeType[kind] if kind else None,
            path=self.cleaned_data.get("path") or None,
        )

    def refuse(self, name: str) -> bool:
        """Leave out a condition that the timeline cannot use. False where it is not set."""
        if not self.cleaned_data.get(name):
            return False
        self.add_error(name, _("This is not a path of a field. Enter one such as /rate"))
        return True

    @property
    def refused(self) -> list[str]:
        """The labels of the conditions that are wrong."""
        return [str(self.fields[name].label) for name in ASKED if name in self.errors]

    @property
    def applied(self) -> int:
        """How many conditions are used."""
        self.is_valid()
        return sum(1 for name in ASKED if self.cleaned_data.get(name))

    @property
    def applied_text(self) -> str:
        return ngettext("{n} condition", "{n} conditions", self.applied).format(n=self.applied)

    def chips(self, address: str) -> list[tuple[str, str, str]]:
        """Name and value of each condition that is used, and the timeline without it."""
        kept = self.parameters()
        found = []
        for name in ASKED:
            if name in kept:
                rest = {key: text for key, text in kept.items() if key not in (name, "tz")}
                query = urlencode({**rest, "tz": kept["tz"]} if rest and "tz" in kept else rest)
                value = kept[name].replace("T", " ") if name in ("from", "to") else kept[name]
                label = str(self.fields[name].label)
                shown = dict(TYPES).get(value, value) if name == "type" else value
                found.append((label, str(shown), f"{address}?{query}" if query else address))
        return found

    def parameters(self) -> dict[str, str]:
        """The used conditions as query parameters, for links that keep them."""
        names = (*ASKED, "tz") if self.applied else ()
        given = {name: self.data.get(name, "") for name in names if self.cleaned_data.get(name)}
        return {name: text for name, text in given.items() if text}


def by_name(authors: Iterable[Author | None]) -> list[Author]:
    """Each once, for the lists of suggestions."""
    found = {author.login: author for author in authors if author}
    return sorted(found.values(), key=lambda author: author.name)
