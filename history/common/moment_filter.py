"""Shows moments on pages in the viewer's zone. annals.js then shortens them."""

from datetime import UTC, datetime

from django import template
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

register = template.Library()


@register.filter
def when(moment: datetime | None, form: str = "full") -> SafeString:
    """Return an HTML element `time` with the exact moment as its title.

    Args:
        form: How annals.js shows the moment. `full`: date and time. `near`: the date only if it is
            not today. `clock`: the time without the date. `date`: the date without the time.
    """
    if moment is None:
        return SafeString("—")
    local_moment = timezone.localtime(moment)
    date = format_day(local_moment)
    return format_html(
        '<time datetime="{}" data-when="{}" title="{}">{}</time>',
        moment.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        form,
        f"{date}, {local_moment.isoformat()[11:]}",
        date if form == "date" else f"{date}, {local_moment:%H:%M:%S}",
    )


def format_day(local_moment: datetime) -> str:
    """Format the date of a moment in the same way as the dates in documents."""
    return _("{year}-{month}-{day}").format(
        year=local_moment.year, month=f"{local_moment:%m}", day=f"{local_moment:%d}"
    )
