"""`manage.py inbox`: processes messages from Kafka, or shows the status of the inbox."""

from outbox.inbox import status
from outbox.inbox.conf import conf
from outbox.inbox.loop import InboxConsumer
from outbox.inbox.models import Waiting
from outbox.operations import process


class Command(process.Command):
    """`manage.py inbox`, which processes messages from Kafka or shows the status of the inbox."""

    help = "Process messages from Kafka, or show which messages wait or failed"
    processes = {"consume": ("process messages", InboxConsumer)}
    conf = conf
    status = status.read_status
    model = Waiting
