"""The URL of an archive may have a key in it, which nobody must read."""

from __future__ import annotations

import pytest

from history.archive.store import ArchiveError, Store

KEY = "AKIAEXAMPLE:wJalrXUtn%2FK7"
WHERE = "region=us-east-1&endpoint_override=127.0.0.1:1&scheme=http"


def test_what_people_see_of_it_has_no_key() -> None:
    assert Store(f"s3://{KEY}@bucket/annals?{WHERE}").place == "s3://bucket/annals"
    assert Store("/var/lib/annals archive").place == "file:///var/lib/annals%20archive"


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIAEXAMPLE:wJalrXUtn/K7@bucket/annals",  # keys of S3 often have slashes
        f"s3://{KEY}@buck et/annals",
        f"s3://{KEY}@bucket/annals?nonsense=wJalrXUtn",
        "gs://wJalrXUtn@bucket/annals?nonsense=1",
    ],
)
def test_a_wrong_one_is_not_quoted(url: str) -> None:
    with pytest.raises(ArchiveError, match="ANNALS_ARCHIVE_URL is wrong") as caught:
        Store(url)
    assert "wJalrXUtn" not in str(caught.value)
    assert caught.value.__suppress_context__
