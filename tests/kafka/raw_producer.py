"""A producer of messages whose header names are not UTF-8, which confluent_kafka refuses.

It calls the copy of librdkafka that confluent_kafka contains.
"""

import ctypes
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import files
from typing import Any

from annals.embedded.broker import KafkaConfig

RawHeaders = Iterable[tuple[bytes, bytes | None]]

# From rdkafka.h.
PRODUCER, COPY = 0, 2
END, TOPIC, PARTITION, VALUE, KEY, FLAGS, TIMESTAMP, HEADERS = 0, 1, 3, 4, 5, 7, 8, 10


class RawProducer:
    """A producer that sends to partition 0 of a topic. Header names are bytes."""

    def __init__(self, client: KafkaConfig) -> None:
        self._library = load_librdkafka()
        self._error = ctypes.create_string_buffer(512)
        settings = self._call("rd_kafka_conf_new")
        for name, value in {**client, "acks": "all", "message.max.bytes": 8_000_000}.items():
            result = self._library.rd_kafka_conf_set(
                settings, name.encode(), str(value).encode(), self._error, len(self._error)
            )
            assert result == 0, self._error.value
        self._handle = self._call("rd_kafka_new", PRODUCER, settings, self._error, 512)

    def send_message(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: RawHeaders = (),
        timestamp: int = 0,
    ) -> None:
        """Send a message.

        Args:
            timestamp: Milliseconds since the epoch, or 0 for now.
        """
        listed = self._call("rd_kafka_headers_new", ctypes.c_size_t(8))
        for name, content in headers:
            self._library.rd_kafka_header_add(
                listed,
                name,
                ctypes.c_ssize_t(len(name)),
                content,
                ctypes.c_ssize_t(-1 if content is None else len(content)),
            )
        failed = self._library.rd_kafka_producev(
            self._handle,
            TOPIC,
            topic.encode(),
            PARTITION,
            ctypes.c_int32(0),
            FLAGS,
            COPY,
            VALUE,
            value,
            ctypes.c_size_t(len(value or b"")),
            KEY,
            key,
            ctypes.c_size_t(len(key or b"")),
            TIMESTAMP,
            ctypes.c_int64(timestamp),
            HEADERS,
            listed,
            END,
        )
        assert failed == 0

    def flush_and_close(self) -> None:
        """Wait until all messages are delivered, and close the producer."""
        assert self._library.rd_kafka_flush(self._handle, 60_000) == 0
        self._library.rd_kafka_destroy(self._handle)

    def _call(self, function: str, *values: Any) -> ctypes.c_void_p:
        """Call a function that returns a pointer."""
        called = self._library[function]
        called.restype = ctypes.c_void_p
        return ctypes.c_void_p(called(*values))


@contextmanager
def open_raw_producer(client: KafkaConfig) -> Iterator[RawProducer]:
    """Open a producer. At the end of the block wait until all its messages are delivered."""
    producer = RawProducer(client)
    yield producer
    producer.flush_and_close()


def load_librdkafka() -> ctypes.CDLL:
    """Load the librdkafka that confluent_kafka uses."""
    listed = files("confluent-kafka") or ()
    [results] = [item for item in listed if item.name.startswith("librdkafka-")]
    return ctypes.CDLL(str(results.locate()))
