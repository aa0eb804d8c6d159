"""`manage.py outbox`: sends recorded versions to Kafka, or shows the status of the outbox."""

from outbox.conf import conf
from outbox.models import Document
from outbox.operations import process, status
from outbox.relay.answer import RequestAnswerer
from outbox.relay.loop import RelayLoop


class Command(process.Command):
    """`manage.py outbox`, which sends recorded versions to Kafka or shows the status of the outbox.

    The subcommand `relay` sends each version for the first time. The subcommand `answer` sends
    versions again that are requested in the topic `annals.gaps`.
    """

    help = "Send recorded versions to Kafka, or show which versions wait or failed"
    processes = {
        "relay": ("send recorded versions to Kafka", RelayLoop),
        "answer": ("send versions again that Annals misses", RequestAnswerer),
    }
    conf = conf
    status = status.read_status
    model = Document
