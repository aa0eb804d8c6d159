"""Messages through the decoder, led by what they reach in it: `python -m tests.fuzz_guided
-runs=1000000 -seed=1` (libFuzzer's options). Needs atheris, which is not among the requirements:
`pip install atheris==3.0.0` (Linux, Python up to 3.13).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["history", "ingest"]):
    from tests import fuzz
    from tests.messages import CHILD, TOPIC


def once(data: bytes) -> None:
    """The first byte chooses the topic, the rest is the message."""
    topic, body = (TOPIC if data[:1] < b"\x80" else CHILD), data[1:]
    found = fuzz.outcome(body, topic)
    assert fuzz.outcome(body, topic) == found


def main() -> None:
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(fuzz.seeds()):
            Path(corpus, str(number)).write_bytes(b"\0" + seed)
        atheris.Setup([*sys.argv, "-max_len=10000", corpus], once)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
