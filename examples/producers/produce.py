"""Sends three versions of an application: `python produce.py localhost:9092 TOPIC ID`."""

import json
import sys
from datetime import UTC, datetime

from confluent_kafka import Producer

brokers, topic, id = sys.argv[1:]
producer = Producer({"bootstrap.servers": brokers, "acks": "all", "enable.idempotence": True})
refused = []
for version, rate in enumerate(["18.4", "17.9", "17.2"], 1):
    message = {
        "id": id,
        "version": version,
        "type": "CREATE" if version == 1 else "UPDATE",
        "updatedAt": datetime.now(UTC).isoformat(),
        "clientId": "example-python",
        "author": "m.prygunov",
        "data": {"number": f"N-{id}", "rate": rate},
    }
    producer.produce(
        topic,
        json.dumps(message),
        key=id,
        on_delivery=lambda error, _: refused.append(error) if error else None,
    )
if producer.flush(30) or refused:
    sys.exit(f"not all versions are in Kafka: {refused or 'no answer in 30 seconds'}")
