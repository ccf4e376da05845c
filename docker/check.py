"""Build both images and use them: the demo's pretraining in the one, an answered request in the other.

    python docker/check.py --demo .demo --work .images-check

For Linux and root, with Debian's buildah and debootstrap, and what `make demo` has made. No registry is asked: a Debian
with its own Python 3.11, made by debootstrap, stands in for the base image. Containers run as the image says, by its
user, with a read-only root but for /tmp, as on the cluster. Prints the images' sizes.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lingraft.artifact import MANIFEST, Kind, read_manifest
from lingraft.config import Recipe

ROOT = Path(__file__).parents[1]
BASE = "localhost/lingraft-base:bookworm"
PACKAGES = ["python3.11", "python3.11-venv", "python-is-python3"]
PORT, READY_S, STOP_S = 8080, 120, 30
STORAGE = ["--storage-driver", "vfs"]


def buildah(*arguments: object, quiet: bool = True) -> str:
    """Run buildah's command; returns what it said."""
    command = ["buildah", *STORAGE, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE if quiet else None)
    return (done.stdout or "").strip()


@contextlib.contextmanager
def container(image: str) -> Iterator[tuple[str, Path]]:
    """A container of an image, and the folder of its root."""
    name = buildah("from", "--pull-never", image)
    try:
        yield name, Path(buildah("mount", name))
    finally:
        buildah("rm", name)


def make_base(mirror: str | None) -> None:
    """Make the base image, once."""
    if buildah("images", "--quiet", "--filter", f"reference={BASE}"):
        return
    with container("scratch") as (name, root):
        suite = ["--variant=minbase", "--include=ca-certificates", "bookworm", str(root), *([mirror] if mirror else [])]
        subprocess.run(["debootstrap", *suite], check=True)
        # By apt, which puts them in the order in which they can be configured.
        for command in (["update"], ["install", "--yes", "--no-install-recommends", *PACKAGES], ["clean"]):
            subprocess.run(["chroot", root, "apt-get", "-q", *command], check=True)
        buildah("config", "--env", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", name)
        buildah("commit", name, BASE)


def build(name: str, given: argparse.Namespace) -> str:
    """Build an image from its Dockerfile; returns its reference."""
    image = f"localhost/lingraft-{name}:check"
    arguments = {"BASE_IMAGE": BASE, "TORCH_INDEX": given.torch_index, "ACCELERATOR": "cpu"}
    options = [part for key, value in arguments.items() for part in ("--build-arg", f"{key}={value}")]
    options += [part for volume in given.volume for part in ("--volume", volume)]
    options += ["--secret", f"id=pip,src={given.pip_conf}"] if given.pip_conf else []
    began = time.monotonic()
    file = ROOT / "docker" / f"{name}.Dockerfile"
    # OCI's own format knows no health check.
    kind = ["--isolation", "chroot", "--format", "docker", "--layers", "--pull-never"]
    buildah("build", *kind, *options, "-f", file, "-t", image, ROOT, quiet=False)
    print(f"{name}: built in {time.monotonic() - began:.0f} s")
    return image


def sizes(image: str) -> dict[str, int]:
    """Bytes of an image, and of its largest parts."""
    with container(image) as (_, root):
        packages = root / "opt/venv/lib/python3.11/site-packages"
        folders = {"whole": root, "venv": root / "opt/venv", **{p.name: p for p in packages.iterdir() if p.is_dir()}}
        counted = {name: _bytes_of(folder) for name, folder in folders.items()}
    return dict(sorted(counted.items(), key=lambda each: -each[1])[:8])


def _bytes_of(folder: Path) -> int:
    done = subprocess.run(["du", "--summarize", "--bytes", folder], check=True, capture_output=True, text=True)
    return int(done.stdout.split()[0])


@contextlib.contextmanager
def running(image: str, arguments: Sequence[str], mounts: dict[str, Path]) -> Iterator[subprocess.Popen[str]]:
    """Start a container with the image's entry point, environment and user, its root read-only but for /tmp."""
    with container(image) as (_, root):
        config: dict[str, Any] = json.loads(buildah("inspect", "--type", "image", image))["OCIv1"]["config"]
        lines = [f"mount --bind {root} {root}"]
        for inside, outside in mounts.items():
            (root / inside.strip("/")).mkdir(exist_ok=True)
            lines.append(f"mount --bind {outside} {root}{inside}")
        lines += [f"mount --rbind /{each} {root}/{each}" for each in ("proc", "dev")]
        lines += [f"mount -t tmpfs tmpfs {root}/tmp", f"chmod 1777 {root}/tmp", f"mount -o remount,bind,ro {root}"]
        entered = ["chroot", f"--userspec={config['User']}", str(root), "/usr/bin/env", "-i", *config["Env"]]
        command = [*config["Entrypoint"], *arguments]
        script = " && ".join(lines) + ' && exec "$@"'
        isolated = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script, "sh", *entered, *command]
        with subprocess.Popen(isolated, text=True) as process:
            try:
                yield process
            finally:
                process.kill()


def artifact_of(demo: Path, kind: Kind, language: str) -> Path:
    """What the demo made of a kind in a language."""
    for manifest in sorted((demo / "runs").rglob(MANIFEST)):
        found = read_manifest(manifest.parent)
        if (found.kind, found.language) == (kind, language):
            return manifest.parent
    sys.exit(f"no {kind} of {language!r} in {demo}: run 'make demo' first")


def train(image: str, demo: Path, work: Path, steps: int | None) -> None:
    """Do the demo's pretraining in the train image."""
    text = (ROOT / "recipes" / "demo.toml").read_text(encoding="utf-8")
    if steps:
        text = re.sub(r"(\[pretraining\]\n(?:.*\n)*?steps = )\d+", rf"\g<1>{steps}", text, count=1)
        text = re.sub(r"(\[pretraining\]\n(?:.*\n)*?warmup_steps = )\d+", rf"\g<1>{steps // 10}", text, count=1)
    (work / "recipe.toml").write_text(text, encoding="utf-8")
    source = Recipe.load(work / "recipe.toml").source
    folders = {f"/{kind}": artifact_of(demo, kind, source) for kind in (Kind.BLOCKS, Kind.TOKENIZER)}
    arguments = ["pretrain", "--recipe", "/made/recipe.toml", "--out", "/made/primary"]
    arguments += [part for folder in folders for part in (f"--{folder.strip('/')}", folder)]
    with running(image, arguments, {"/made": work, **folders}) as process:
        assert process.wait() == 0, "pretraining failed in the train image"
    made = read_manifest(work / "primary")
    print(f"train image: pretrained {made.cost.steps} steps in {made.cost.elapsed_s:.0f} s")


def serve(image: str, bundle: Path) -> None:
    """Ask the serve image one question, and stop it as Kubernetes does."""
    with running(image, ["/bundle", f"--port={PORT}"], {"/bundle": bundle}) as process:
        _wait_until_ready(process)
        url = f"http://127.0.0.1:{PORT}/v2/models"
        with urllib.request.urlopen(url) as answer:
            name = json.load(answer)["models"][0]
        asked = {"text": "How do I sort a column?", "language": "en"}
        inputs = [{"name": key, "datatype": "BYTES", "shape": [1], "data": [value]} for key, value in asked.items()]
        body, headers = json.dumps({"inputs": inputs}).encode(), {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(f"{url}/{name}/infer", body, headers)) as answer:
            outputs = {each["name"]: each["data"] for each in json.load(answer)["outputs"]}
        print(f"serve image: {asked['text']!r} -> {outputs['label'][0]} ({outputs['probability'][0]:.0%})")
        process.send_signal(signal.SIGTERM)
        code = process.wait(STOP_S)
        print(f"serve image: ended with {code} on SIGTERM")
        assert code == 0, "the server did not end in good order"


def _wait_until_ready(process: subprocess.Popen[str]) -> None:
    began = time.monotonic()
    while time.monotonic() < began + READY_S:
        assert process.poll() is None, "the server ended"
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{PORT}/v2/health/ready"):
            print(f"serve image: ready after {time.monotonic() - began:.1f} s")
            return
        time.sleep(0.1)
    sys.exit(f"the server was not ready after {READY_S} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demo", type=Path, required=True, help="folder of the demo's results")
    parser.add_argument("--work", type=Path, required=True, help="new folder for what the train image makes")
    parser.add_argument("--steps", type=int, help="of pretraining; the recipe's if absent")
    parser.add_argument("--mirror", help="of Debian's packages; debootstrap's own choice if absent")
    parser.add_argument("--torch-index", default="https://download.pytorch.org/whl/cpu", help="CPU builds of torch")
    parser.add_argument("--pip-conf", type=Path, help="pip's configuration where there is a mirror")
    parser.add_argument("--volume", action="append", default=[], help="further folders while building, HERE:THERE:ro")
    given = parser.parse_args()
    if os.geteuid():
        parser.error("run it as root: containers have a root of their own")
    if given.work.exists():
        parser.error(f"{given.work} is there already: remove it, or name another folder")
    given.work.mkdir(parents=True)
    os.chown(given.work, 10001, 10001)
    make_base(given.mirror)
    images = {name: build(name, given) for name in ("train", "serve")}
    for name, image in images.items():
        megabytes = {part: round(size / 1e6) for part, size in sizes(image).items()}
        print(f"{name} image, MB: {json.dumps(megabytes)}")
    train(images["train"], given.demo.resolve(), given.work.resolve(), given.steps)
    serve(images["serve"], given.demo.resolve() / "bundle")


if __name__ == "__main__":
    main()
