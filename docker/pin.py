"""Write the digests of images into the Dockerfiles and an overlay, as their registry tells them.

    python docker/pin.py docker/train.Dockerfile docker/serve.Dockerfile manifests/overlays/prod/kustomization.yaml

Debian's skopeo asks the registries, with the credentials of your docker or podman login. Nothing is written unless
every image was found.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

BASE = re.compile(r"^ARG BASE_IMAGE=(?P<name>[^\s:@]+):(?P<tag>[^\s@]+)(?:@sha256:[0-9a-f]{64})?$", re.MULTILINE)
ENTRY = re.compile(
    r'^(?P<head>  - name: (?P<name>\S+)\n    newTag: "?(?P<tag>[^\s"]+)"?)(?:\n    digest: sha256:[0-9a-f]{64})?$',
    re.MULTILINE,
)
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def digest_of(image: str, plain_http: bool) -> str:
    """What the registry calls an image.

    Raises:
        LookupError: it was not found, or the registry cannot be reached.
    """
    command = ["skopeo", "inspect", "--no-tags", f"--tls-verify={'false' if plain_http else 'true'}"]
    done = subprocess.run([*command, f"docker://{image}"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LookupError(f"{image}: {done.stderr.strip()}")
    found = str(json.loads(done.stdout)["Digest"])
    if not DIGEST.fullmatch(found):
        raise LookupError(f"{image}: the registry answers with {found!r}, which is no digest")
    return found


def pinned(text: str, ask: Callable[[str], str]) -> str:
    """A Dockerfile or a kustomization with the digest of every image that it names by a tag."""
    text = BASE.sub(lambda each: f"ARG BASE_IMAGE={each['name']}:{each['tag']}@{ask(_named(each))}", text)
    return ENTRY.sub(lambda each: f"{each['head']}\n    digest: {ask(_named(each))}", text)


def _named(found: re.Match[str]) -> str:
    return f"{found['name']}:{found['tag']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--plain-http", action="store_true", help="for a registry of your own without TLS")
    given = parser.parse_args()
    missing: list[str] = []

    def ask(image: str) -> str:
        try:
            found = digest_of(image, given.plain_http)
        except LookupError as error:
            missing.append(str(error))
            return ""
        print(f"{image} {found}")
        return found

    written = {file: pinned(file.read_text(encoding="utf-8"), ask) for file in given.files}
    if missing:
        sys.exit("nothing was written, since not every image was found:\n" + "\n".join(missing))
    for file, text in written.items():
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
