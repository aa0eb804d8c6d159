"""`manage.py outbox`: send recorded versions, send them again on request, or show what waits."""

from outbox.conf import conf
from outbox.models import Document
from outbox.operations import process, status
from outbox.relay.answer import RequestAnswerer
from outbox.relay.loop import RelayLoop


class Command(process.Command):
    """The command of the outbox."""

    help = "Send recorded versions to Kafka, also again for who misses them, or say what waits"
    processes = {
        "relay": ("send recorded versions to Kafka", RelayLoop),
        "answer": ("send versions again that Annals misses", RequestAnswerer),
    }
    conf = conf
    status = status.read_status
    model = Document
