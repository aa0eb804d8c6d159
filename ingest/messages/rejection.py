"""The reasons why a message goes to quarantine, and the errors for such messages."""

from enum import StrEnum

from ingest.messages.explanations import Explanation


class Reason(StrEnum):
    """The reason why a message is in quarantine.

    decode.py finds most reasons. copy.py, slow_path.py and batch.py of ingest/store find
    NOT_STORABLE, BAD_NUMBER, DIVERGENT and NO_PARTITION when a batch is written. The words for
    screens and commands are in history/store/quarantine_reasons.py.
    """

    EMPTY = "empty_value"
    NOT_JSON = "not_json"
    BAD_FIELD = "bad_field"
    BAD_TYPE = "bad_type"
    BAD_TIME = "bad_updated_at"
    BAD_DATA = "bad_data"
    NO_APPLICATION = "no_product_instance_id"
    TOO_DEEP = "nested_too_deep"
    TOO_LARGE = "too_large"
    FUTURE = "in_the_future"
    UNKNOWN_TOPIC = "unknown_topic"
    BAD_TEXT = "text_not_storable"
    BAD_NUMBER = "number_out_of_range"
    NOT_STORABLE = "not_storable"
    DIVERGENT = "divergent_duplicate"
    NO_PARTITION = "no_partition"


class RejectedMessageError(Exception):
    """Raised for a message that breaks the contract."""

    def __init__(self, reason: Reason, explanation: Explanation) -> None:
        super().__init__(reason, explanation)
        self.reason = reason
        self.explanation = explanation

    def __str__(self) -> str:
        return self.detail

    @property
    def detail(self) -> str:
        """The explanation in English. It never quotes the snapshot."""
        return self.explanation.english


class RepeatedMessageError(RejectedMessageError):
    """Raised for a message that brings no version and has no value, such as a tombstone.

    The declared envelope of the topic allows such a message, so the message counts as repeated and
    not as bad.
    """
