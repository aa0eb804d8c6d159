"""Pins the images of docker/ by digest: `python scripts/pin_images.py`, with access to a registry.

The script asks the registry of each image for the digest of its tag, and writes
`name:tag@sha256:...` into docker/Dockerfile and docker/compose.yaml. `--check` changes no file, and
exits with 1 if an image has no digest, or if its tag has a new digest.
"""

import argparse
import hashlib
import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

DOCKER = Path(__file__).resolve().parent.parent / "docker"
FILES = ("Dockerfile", "compose.yaml")
# Matches an image with a tag. Our own images do not have one.
IMAGE = re.compile(
    r"(?P<before>^FROM |^ +image: )(?P<name>[\w./:-]+):(?P<tag>[\w.-]+)(?:@sha256:\w+)?",
    re.MULTILINE,
)
HUB = "registry-1.docker.io"
MANIFEST_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
TIMEOUT_S = 20


def split_image_name(name: str) -> tuple[str, str]:
    """Return the registry and the repository of an image. A short name belongs to Docker Hub."""
    first, _, remainder = name.partition("/")
    if remainder and ("." in first or ":" in first):
        return first, remainder
    return HUB, name if remainder else f"library/{name}"


def fetch_url(url: str, headers: dict[str, str]) -> bytes:
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 # https, or loopback
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310
        return bytes(response.read())


def fetch_token(challenge: str) -> str:
    """Get the token that a registry demands even for reading a public image."""
    parts = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    query = urllib.parse.urlencode({k: parts[k] for k in ("service", "scope") if k in parts})
    answer = json.loads(fetch_url(f"{parts['realm']}?{query}", {}))
    return str(answer.get("token") or answer["access_token"])


def fetch_digest(name: str, tag: str) -> str:
    """Return the digest of a tag for all platforms: the SHA-256 of its manifest.

    Raises:
        OSError: The registry does not answer.
    """
    registry, repository = split_image_name(name)
    scheme = "http" if registry.startswith("127.0.0.1:") else "https"
    url = f"{scheme}://{registry}/v2/{repository}/manifests/{tag}"
    headers = {"Accept": ", ".join(MANIFEST_TYPES)}
    try:
        manifest = fetch_url(url, headers)
    except urllib.error.HTTPError as error:
        if error.code != 401:
            raise
        bearer = fetch_token(error.headers.get("WWW-Authenticate", ""))
        manifest = fetch_url(url, {**headers, "Authorization": f"Bearer {bearer}"})
    return "sha256:" + hashlib.sha256(manifest).hexdigest()


def main(folder: Path = DOCKER, arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change no file")
    only_check = parser.parse_args(arguments).check
    texts = {file: (folder / file).read_text() for file in FILES}
    images = {(m["name"], m["tag"]) for text in texts.values() for m in IMAGE.finditer(text)}
    digests = {}
    for name, tag in sorted(images):
        try:
            digests[name, tag] = fetch_digest(name, tag)
        except (OSError, KeyError, ValueError) as error:
            print(f"{name}:{tag} has no digest in its registry: {error}. No file was changed.")
            return 2
        print(f"{name}:{tag} {digests[name, tag]}")
    changed = False
    for file, text in texts.items():
        pinned = IMAGE.sub(
            lambda m: f"{m['before']}{m['name']}:{m['tag']}@{digests[m['name'], m['tag']]}", text
        )
        if pinned != text:
            changed = True
            if only_check:
                print(f"{file} has an image without a digest, or with an old digest of its tag")
            else:
                (folder / file).write_text(pinned)
    return int(changed and only_check)


if __name__ == "__main__":
    sys.exit(main())
