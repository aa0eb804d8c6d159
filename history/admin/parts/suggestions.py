"""What a reader means who types a name where the timeline has a login or a path."""

from collections.abc import Collection

from django.core.exceptions import ValidationError
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from history import labels, people

MOST_NAMED = 5


class SeveralFieldsError(ValidationError):
    """Several fields are called so. found: name and path of each."""

    def __init__(self, found: Collection[tuple[str, str]]) -> None:
        super().__init__(_("Several fields fit. Choose one of them."))
        self.found = found


def login(text: str) -> str | None:
    """The login of the only one who is called so; None where the list of people has nobody with
    this name or login. Raises ValidationError where several have the name."""
    found = people.called(text) if text else []
    if len(found) > 1:
        several = _("Several have this name: {found}. Enter the login.")
        raise ValidationError(
            several.format(found=_listed([f"{one.name} ({one.login})" for one in found]))
        )
    return found[0].login if found else None


def path(text: str, kinds: Collection[str]) -> str:
    """The path of the only field that is called so in these kinds; a text that begins with a slash
    is a path, and so is one without blanks in Latin letters that is no name. Raises
    SeveralFieldsError, ValidationError where none has the name."""
    if not text or text.startswith("/"):
        return text
    found = labels.catalogue().named(text, kinds)
    plain = text.isascii() and not any(each.isspace() for each in text)
    if plain and not any(text.casefold() in each.names for each in found.values()):
        return f"/{text}"
    if not found:
        text = _(
            "No field has this name. Click on the name of a field in a version, or enter its path."
        )
        raise ValidationError(text)
    if len(found) > 1:
        language = get_language() or "ru"
        raise SeveralFieldsError([(label.text(language), where) for where, label in found.items()])
    return next(iter(found))


def _listed(names: Collection[str]) -> str:
    shown = list(names)[:MOST_NAMED]
    return ", ".join(shown) + (", …" if len(names) > MOST_NAMED else "")
