"""Many applications opened at once, to be faster than the quota."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from itertools import count

from tests.attack.result import Figure
from tests.attack.web import QUOTA, Site, together

AT_ONCE = 32
PATIENCE_S = 60
# Nobody else asks with this login here.
LOGIN = "Basic " + base64.b64encode(b"auditor:auditor").decode()


def run(site: Site, *, fast: bool) -> Iterator[Figure]:
    """How many applications a login opens."""
    for number in range(AT_ONCE):
        site.store(f"collected{number}", 2, 3)
    with site.serve(ANNALS_QUOTA_PEOPLE=str(QUOTA)) as web:
        following = count()
        opened: list[int] = []

        def collect() -> None:
            address = f"/api/v1/history/product-instance/collected{next(following)}"
            end = time.monotonic() + PATIENCE_S
            while True:
                answer = web.get(address, headers={"Authorization": LOGIN})
                # A slow machine has no place for all of them; a collector asks again.
                if answer.status != 503 or time.monotonic() > end:
                    break
                time.sleep(int(answer.headers["retry-after"]))
            opened.append(answer.status)

        with together(AT_ONCE, collect):
            pass
        what = f"{AT_ONCE} applications asked for at once: opened"
        yield Figure(what, opened.count(200), QUOTA)
        if opened.count(200) + opened.count(429) != AT_ONCE:
            raise RuntimeError(f"other answers: {opened}")
