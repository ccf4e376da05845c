"""Write the digests of images into the Dockerfiles and an overlay, as their registry tells them.

    python docker/pin.py docker/train.Dockerfile docker/serve.Dockerfile manifests/overlays/prod/kustomization.yaml

Debian's skopeo asks the registries, with the credentials of your docker or podman login. Nothing is written unless
every image was found; where a file cannot be written, those before it are put back.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from lingraft.artifacts.files import write_text
from lingraft.errors import ArtifactError

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


def replace_all(before: Mapping[Path, str], after: Mapping[Path, str]) -> None:
    """Write what has changed of several texts, all or none.

    Args:
        before: the texts by their files, as they are.
        after: as they are to be.

    Raises:
        ArtifactError: one cannot be written; the others are what they were.
    """
    written: list[Path] = []
    try:
        for file in before:
            if after[file] != before[file]:
                write_text(file, after[file])
                written.append(file)
    except BaseException:  # Ctrl-C too
        for file in written:
            write_text(file, before[file])
        raise


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

    before = {file: file.read_text(encoding="utf-8") for file in given.files}
    after = {file: pinned(text, ask) for file, text in before.items()}
    if missing:
        sys.exit("nothing was written, since not every image was found:\n" + "\n".join(missing))
    try:
        replace_all(before, after)
    except ArtifactError as error:
        sys.exit(f"images were not pinned: {error}")


if __name__ == "__main__":
    main()
