"""The ingest app: the way of a message from Kafka into the tables."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class IngestConfig(AppConfig):
    name = "ingest"
    verbose_name = _("Ingest")
