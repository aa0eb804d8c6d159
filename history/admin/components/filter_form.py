"""The filter above a timeline: a form with conditions, and the query string that sets them."""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Any, ClassVar, NamedTuple
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django import forms
from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import get_language, gettext, ngettext
from django.utils.translation import gettext_lazy as _

from history.admin.components.cards import CHANGE_TEXTS
from history.admin.components.links import PAGE
from history.admin.reading_aids import moment_words
from history.common import clock, zone
from history.common.moment_filter import format_day
from history.documents.record import AUTHOR_LENGTH, CLIENT_ID_LENGTH, ChangeType
from history.kinds.entities import EntityKind
from history.store.catalogue import labels, people
from history.store.catalogue.people import NamedLogin
from history.timeline import VersionFilters

TYPES = [
    ("", _("any change")),
    *((kind.name, words) for kind, words in CHANGE_TEXTS.items()),
]
MOST_NAMED = 5
YEAR_OUTSIDE = _("Enter a year from 1 to 9999.")
CONDITIONS = ("author", "clientId", "type", "from", "to", "path")


MOMENT_FORMATS = ["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d"]


def _make_text_input(hint: Promise, **attrs: str | Promise) -> forms.TextInput:
    """Return a text field that shows `hint` while it is empty."""
    return forms.TextInput(attrs={"autocomplete": "off", "placeholder": hint, **attrs})


class MomentField(forms.DateTimeField):
    """A form field for a moment, which can be written in words (see moment_words).

    The field is a plain text field, because browsers show a date field in different ways.
    """

    # annals.js adds a button with a calendar to it.
    widget = _make_text_input(_("yesterday 12:00"), **{"data-pick": _("Choose in a calendar")})
    default_error_messages = {"invalid": _("Not a date. Write 26.11.2026 12:00 or yesterday 12:00")}
    zone: tzinfo = UTC  # the zone of the person who writes; see ZonedForm
    unknown_zone = ""  # the name of the zone in the address, if it is not the name of a zone

    def to_python(self, value: Any) -> datetime | None:
        """Parse the entered moment, and return it as local time in `zone`.

        A text without an offset from UTC is read as local time in `zone`. A text with an offset is
        read as local time with this offset, and then converted to `zone`.
        """
        text, offset = moment_words.split_offset(value.strip() if isinstance(value, str) else "")
        if text and offset is None and self.unknown_zone:
            message = _("There is no time zone “{name}”. Enter the moment again.")
            raise forms.ValidationError(message.format(name=self.unknown_zone))
        today = clock.now().astimezone(offset or self.zone).date()
        # In UTC, because Django refuses times that occur twice or never when clocks change.
        with timezone.override(UTC):
            moment = moment_words.parse_moment(text, today) or super().to_python(text)
        try:
            in_zone = moment and offset and moment.replace(tzinfo=offset).astimezone(self.zone)
        except OverflowError:
            raise forms.ValidationError(YEAR_OUTSIDE) from None
        return in_zone or moment


class ZonedForm(forms.Form):
    """A form that reads moments in the time zone `tz`, which annals.js sets to the browser's.

    Without `tz` the moments are in the time zone that the viewer chose.
    """

    tz = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.label_suffix = ""
        self.use_required_attribute = False

    def full_clean(self) -> None:
        zone_name = self.data.get("tz", "")
        is_known = zone_name in zone.list_zone_names()
        form_zone = ZoneInfo(zone_name) if is_known else timezone.get_current_timezone()
        for field in self.fields.values():
            if isinstance(field, MomentField):
                field.zone = form_zone
                field.unknown_zone = "" if is_known else zone_name
        if zone_name and not is_known:  # the form does not send it again
            self.data = {**_read_texts(self.data), "tz": ""}
        super().full_clean()

    def get_moment(self, name: str) -> datetime | None:
        """Return the moment in the field `name` in UTC, or None if it is missing or wrong.

        If it is out of range, add an error to the field.
        """
        value: datetime | None = self.cleaned_data.get(name)
        field: Any = self.fields[name]
        try:
            return value.replace(tzinfo=field.zone).astimezone(UTC) if value else None
        except OverflowError:
            self.add_error(name, YEAR_OUTSIDE)
            return None

    def get_bounds(self, low: str, high: str) -> tuple[datetime | None, datetime | None]:
        """Return the moments in two fields, the beginning and the end of a period, in UTC.

        If the end is before the beginning, the end is None and its field gets an error.
        """
        since, until = self.get_moment(low), self.get_moment(high)
        if since and until and since > until:
            self.add_error(high, _("The end is earlier than the beginning."))
            return since, None
        return since, until


def _read_texts(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a form's data. If a name has several values, only the last value is kept."""
    return {name: data[name] for name in data}


class MomentForm(ZonedForm):
    """Asks for the moment that a page shows. The field is called `time`, as in the API.

    A date without a time means the end of that day, and today's date means now. A moment in the
    future is an error.
    """

    time = MomentField(
        label=_("As of"),
        input_formats=MOMENT_FORMATS,
        error_messages={"required": _("Enter a date and a time.")},
    )

    def clean(self) -> None:
        """Check the moment, and add it to the cleaned data as `at`."""
        now, entered = clock.now(), self.cleaned_data.get("time")
        moment = self.get_moment("time")
        if (
            moment
            and entered
            and entered.time() == time()
            and not moment_words.has_time(self.data["time"])
        ):
            self.cleaned_data["time"] = entered + timedelta(hours=23, minutes=59, seconds=59)
            moment = max(moment, min(now, self.get_moment("time") or now))
        self.cleaned_data["at"] = moment
        if moment and moment > now:
            self.add_error("time", _("This moment is still to come."))


class FilterChip(NamedTuple):
    """A condition in use, as the page shows it above the timeline."""

    label: str  # the name of the condition
    value: str
    url: str  # the timeline without this condition


class FilterForm(ZonedForm):
    """A form with the conditions of a timeline. All fields are optional.

    Attributes:
        unknown_names: The entered names that the list of people and services does not have.
        misplaced_names: A sentence for each service that was entered as a person, and for each
            person that was entered as a service. This is not an error, because a service can be
            the author of versions.
        matching_fields: If several fields have the name that the viewer entered: the name and path
            of each of these fields. Otherwise empty.
    """

    conditions: ClassVar[tuple[str, ...]] = CONDITIONS

    author = forms.CharField(
        label=_("Person"),
        required=False,
        max_length=AUTHOR_LENGTH,
        widget=_make_text_input(_("name or login"), list="known-authors"),
    )
    clientId = forms.CharField(  # noqa: N815 - the API's name of the parameter
        label=_("Service"),
        required=False,
        max_length=CLIENT_ID_LENGTH,
        widget=_make_text_input(_("name or code"), list="known-services"),
    )
    type = forms.ChoiceField(label=_("What happened"), required=False, choices=TYPES)
    path = forms.CharField(
        label=_("Field"),
        required=False,
        strip=False,  # a key may begin or end with a blank
        widget=_make_text_input(_("name or path")),
    )

    def __init__(self, *args: Any, kinds: Iterable[EntityKind], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._kinds = [kind.name for kind in kinds]
        self.unknown_names: list[str] = []
        self.misplaced_names: list[str] = []
        self.matching_fields: Collection[tuple[str, str]] = ()
        self.fields["path"].validators = []  # Django refuses NUL, which a key may have
        for name, label in (("from", _("From")), ("to", _("Before"))):
            self.fields[name] = MomentField(
                label=label, required=False, input_formats=MOMENT_FORMATS
            )
        self.order_fields(["author", "clientId", "type", "from", "to", "path", "tz"])

    def clean_author(self) -> str:
        return self._find_login("author")

    def clean_clientId(self) -> str:  # noqa: N802 - Django's name for it
        return self._find_login("clientId")

    def _find_login(self, name: str) -> str:
        """Return the login of the person that was entered in the form field `name`.

        If no person has this name, return the entered text.

        Raises:
            ValidationError: Several people have this name.
        """
        text: str = self.cleaned_data[name]
        authors = people.find_by_name(text) if text else []
        if len(authors) > 1:
            names = [f"{author.name} ({author.login})" for author in authors[:MOST_NAMED]]
            listed = ", ".join(names) + (", …" if len(authors) > MOST_NAMED else "")
            message = _("Several have this name: {found}. Enter the login.")
            raise forms.ValidationError(message.format(found=listed))
        if text and not authors:
            self.unknown_names.append(text)
        for author in authors:
            if name == "author" and author.kind == "service":
                sentence = gettext("{name} is a service: enter it under “Service”.")
                self.misplaced_names.append(sentence.format(name=author.name))
            elif name == "clientId" and author.kind == "person":
                sentence = gettext("{name} is a person: enter the name under “Person”.")
                self.misplaced_names.append(sentence.format(name=author.name))
        return authors[0].login if authors else text

    def clean_path(self) -> str:
        """Return the entered path. If the name of a field was entered, return the field's path.

        A text that begins with a slash is a path. A text of ASCII characters without blanks is a
        path too, unless it is exactly the name of a field in the page's kinds.

        Raises:
            ValidationError: No field has the name, or several fields have it.
        """
        text: str = self.cleaned_data["path"].lstrip()
        if not text or text.startswith("/"):
            return text
        labels_by_path = labels.get_catalogue().find_by_name(text, self._kinds)
        plain = text.isascii() and not any(character.isspace() for character in text)
        if plain and not any(text.casefold() in label.names for label in labels_by_path.values()):
            return f"/{text}"
        if not labels_by_path:
            message = _(
                "No field has this name. Click on the name of a field in a version, or enter its "
                "path."
            )
            raise forms.ValidationError(message)
        if len(labels_by_path) > 1:
            language = get_language() or "ru"
            self.matching_fields = [
                (label.get_text(language), path) for path, label in labels_by_path.items()
            ]
            raise forms.ValidationError(_("Several fields fit. Choose one of them."))
        return next(iter(labels_by_path))

    def clean(self) -> None:
        """Add `since` and `until`, the bounds of the period as moments, to the cleaned data."""
        since, until = self.get_bounds("from", "to")
        self.cleaned_data |= {"since": since, "until": until}
        self._show_moments()

    def _show_moments(self) -> None:
        """Rewrite the texts of both moments so that they mean the same when the form is sent again.

        The form is sent again with the time zone of the page. So a moment is written with its
        offset from UTC if the page's zone has a different offset, and without an offset otherwise.
        """
        data = _read_texts(self.data)
        for name, moment in self._bounds.items():
            entered, shown = moment.astimezone(self._zone), _to_page_zone(moment)
            if entered.utcoffset() != shown.utcoffset() or shown.fold:
                data[name] = _format_with_offset(entered)
            elif moment_words.split_offset(data[name].strip()).zone:
                time = f"{shown:%H:%M:%S}".removesuffix(":00")
                data[name] = f"{shown:%d.%m.}{shown.year:04} {time}"
        self.data = data

    @property
    def _zone(self) -> tzinfo:
        zone: tzinfo = self.fields["from"].zone  # type: ignore[attr-defined]
        return zone

    @property
    def _bounds(self) -> dict[str, datetime]:
        """The moments in the fields "from" and "to", by field. Empty or wrong fields are absent."""
        bounds = {"from": self.cleaned_data.get("since"), "to": self.cleaned_data.get("until")}
        return {name: moment for name, moment in bounds.items() if moment}

    def to_filters(self) -> VersionFilters:
        """Return the filters for the timeline, without the conditions that are wrong."""
        self.is_valid()
        kind = self.cleaned_data.get("type")
        return VersionFilters(
            since=self.cleaned_data.get("since"),
            until=self.cleaned_data.get("until"),
            author=self.cleaned_data.get("author") or None,
            client_id=self.cleaned_data.get("clientId") or None,
            type=ChangeType[kind] if kind else None,
            path=self.cleaned_data.get("path") or None,
        )

    def refuse_condition(self, name: str) -> bool:
        """Mark a condition as wrong because the timeline cannot use it.

        Returns False, and marks nothing, if the condition is empty or already marked as wrong.
        """
        if not self.cleaned_data.get(name):
            return False
        self.add_error(name, _("This is not a path of a field. Enter one such as /rate"))
        return True

    @property
    def refused(self) -> list[str]:
        """The labels of the conditions that are wrong."""
        return [str(self.fields[name].label) for name in self.conditions if name in self.errors]

    @property
    def applied(self) -> int:
        """How many conditions are used."""
        self.is_valid()
        return sum(1 for name in self.conditions if self.cleaned_data.get(name))

    @property
    def applied_text(self) -> str:
        return ngettext("{n} condition", "{n} conditions", self.applied).format(n=self.applied)

    def make_chips(self, address: str) -> list[FilterChip]:
        """Return a chip for each used condition of the timeline at `address`."""
        parameters = self.get_parameters()
        chips: list[FilterChip] = []
        for name in self.conditions:
            if name in parameters:
                query = urlencode({key: text for key, text in parameters.items() if key != name})
                value = parameters[name]
                if moment := self._bounds.get(name):
                    value = format_moment_with_zone(moment)
                label = str(self.fields[name].label)
                value_text = self._get_choice_text(name, value)
                url = f"{address}?{query}" if query else address
                chips.append(FilterChip(label, value_text, url))
        return chips

    def _get_choice_text(self, name: str, value: str) -> str:
        """Return the label of a choice, or the value itself if the field has no choices."""
        field = self.fields[name]
        choices: Any = field.choices if isinstance(field, forms.ChoiceField) else ()
        return str(dict(choices).get(value, value))

    def get_parameters(self) -> dict[str, str]:
        """Return the used conditions as query parameters, for links with the same filter.

        Moments are written with their offset from UTC. So a link means the same moments in every
        time zone.
        """
        if not self.applied:
            return {}
        bounds = self._bounds
        return {
            name: _format_with_offset(bounds[name].astimezone(self._zone))
            if name in bounds
            else self.data[name]
            for name in self.conditions
            if self.cleaned_data.get(name)
        }

    def build_shared_url(self, request: HttpRequest) -> str:
        """Return the absolute address of the shown page, to be given to other people.

        Times of the filter such as "yesterday 12:00" are written as moments with their offset from
        UTC. So the address keeps its meaning on a later day and in a different time zone.
        """
        page = {name: text for name, text in request.GET.items() if name == PAGE and text}
        query = urlencode({**self.get_parameters(), **page})
        return request.build_absolute_uri(f"{request.path}?{query}".rstrip("?"))


def _format_with_offset(moment: datetime) -> str:
    """Return a moment as ISO 8601 with its offset from UTC, without seconds if they are zero."""
    is_minute = not (moment.second or moment.microsecond)
    return moment.isoformat(timespec="minutes" if is_minute else "auto")


def format_moment_with_zone(moment: datetime) -> str:
    """Return a moment as text in the time zone of the page, with the offset from UTC."""
    shown = _to_page_zone(moment)
    time = shown.time().isoformat("auto").removesuffix(":00")
    offset = f"{shown:%z}"
    name = "UTC" if shown.utcoffset() == timedelta() else f"UTC{offset[:3]}:{offset[3:5]}"
    return f"{format_day(shown)} {time} {name}"


def describe_span(since: datetime, until: datetime) -> str:
    return f"{format_moment_with_zone(since)} – {format_moment_with_zone(until)}"


def _to_page_zone(moment: datetime) -> datetime:
    """Return a moment in the time zone of the page.

    If the moment would be before the year 1 or after the year 9999 in this zone, return the moment
    in UTC.
    """
    try:
        return timezone.localtime(moment)
    except OverflowError:
        return moment.astimezone(UTC)


def sort_by_name(authors: Iterable[NamedLogin | None]) -> list[NamedLogin]:
    """Return the different authors, sorted by name, for a list of suggestions."""
    authors_by_login = {author.login: author for author in authors if author}
    return sorted(authors_by_login.values(), key=lambda author: author.name)
