"""`manage.py inbox`: processes messages, or shows what waits."""

from outbox.inbox import status
from outbox.inbox.conf import conf
from outbox.inbox.loop import InboxConsumer
from outbox.inbox.models import Waiting
from outbox.operations import process


class Command(process.Command):
    """The command of the inbox."""

    help = "Process messages from Kafka, or say what waits"
    processes = {"consume": ("process messages", InboxConsumer)}
    conf = conf
    status = status.read_status
    model = Waiting
