"""`manage.py inbox`: processes messages, and says what waits."""

from outbox import process
from outbox.inbox import status
from outbox.inbox.conf import conf
from outbox.inbox.loop import Consume
from outbox.inbox.models import Waiting


class Command(process.Command):
    """The command of the inbox."""

    help = "Process messages from Kafka, or say what waits"
    processes = {"consume": ("process messages", Consume)}
    conf = conf
    status = status.read
    model = Waiting
