"""For each Reason of ingest, a text for people that says why a message could not be stored."""

from collections.abc import Mapping
from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

REASONS: Final[Mapping[str, Promise]] = {
    "empty_value": _("it has no value"),
    "not_json": _("it is not JSON"),
    "bad_field": _("a field is missing or wrong"),
    "bad_type": _("its type is wrong"),
    "bad_updated_at": _("updatedAt is wrong"),
    "bad_data": _("data is missing or no object"),
    "no_product_instance_id": _("productInstanceId is missing"),
    "nested_too_deep": _("the document is nested too deep"),
    "too_large": _("the document is too large"),
    "in_the_future": _("updatedAt is in the future"),
    "unknown_topic": _("no kind of entity is declared for its topic"),
    "text_not_storable": _("a text in it cannot be stored"),
    "number_out_of_range": _("a number in it cannot be stored"),
    "not_storable": _("it cannot be stored"),
    "divergent_duplicate": _("another content of this version is stored"),
    "no_partition": _("its day has no partition"),
}
