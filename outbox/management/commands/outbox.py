"""`manage.py outbox`: sends recorded versions, sends them again on request, or shows what waits."""

from outbox.conf import conf
from outbox.models import Document
from outbox.operations import process, status
from outbox.relay.answer import RequestAnswerer
from outbox.relay.loop import RelayLoop


class Command(process.Command):
    """The command of the outbox."""

    help = "Send recorded versions to Kafka, send them again on request, or show what waits"
    processes = {
        "relay": ("send recorded versions to Kafka", RelayLoop),
        "answer": ("send versions again that Annals misses", RequestAnswerer),
    }
    conf = conf
    status = status.read_status
    model = Document
