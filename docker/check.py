"""Build both images and use them.

    python docker/check.py --demo .demo-scratch --work .images-check

- A Debian with its own Python 3.11, made by debootstrap, stands in for the base image, so that no registry is asked.
  It is made once, and stays in buildah's storage; so do the images `localhost/lingraft-{train,serve}:check`.
- Both images are built for CPUs from the working tree, and what their largest parts take is printed.
- The train image does the demo's pretraining, of which `--steps` makes a shorter one; what comes of it is in `--work`.
- The serve image's health check has to say "unhealthy" where nothing answers, and "healthy" beside a server that is
  ready; that server answers one question, and has to end with 0 on SIGTERM.

Containers run by the image's user, in its environment, with a read-only root but for /tmp, as on the cluster, but in
the network of this machine. They are removed in the end, also when this is interrupted.

For Linux and root, with Debian's buildah and debootstrap, and what `make demo-scratch` has made.
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
from pathlib import Path
from typing import Any

from containers import ROOT, buildah, container, running

from lingraft.artifacts.manifest import MANIFEST, Kind, read_manifest
from lingraft.config.recipe import Recipe
from lingraft.signals import Interruption, interruptible

BASE = "localhost/lingraft-base:bookworm"
PACKAGES = ["python3.11", "python3.11-venv", "python-is-python3"]
PORT, READY_S, ANSWER_S, STOP_S = 8080, 120, 30, 30


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
    # OCI's own format knows no health check. Without --layers: vfs keeps a whole copy of each.
    kind = ["--isolation", "chroot", "--format", "docker", "--pull-never"]
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


def artifact_of(demo: Path, kind: Kind, language: str) -> Path:
    """Return the folder of the artifact of a kind that the demo made in a language."""
    for manifest in sorted((demo / "runs").rglob(MANIFEST)):
        found = read_manifest(manifest.parent)
        if (found.kind, found.language) == (kind, language):
            return manifest.parent
    sys.exit(f"no {kind} of {language!r} in {demo}: run 'make demo-scratch' first")


def shortened(recipe: str, steps: int) -> str:
    """A recipe's text with another number of pretraining steps."""
    for name, value in (("steps", steps), ("warmup_steps", steps // 10)):
        pattern = rf"(^\[pretraining\]\n(?:(?!\[).*\n)*?{name} = )\d+"
        recipe, found = re.subn(pattern, rf"\g<1>{value}", recipe, count=1, flags=re.MULTILINE)
        if not found:
            sys.exit(f"the recipe's [pretraining] has no {name}, which --steps would change")
    return recipe


def train(image: str, demo: Path, work: Path, steps: int | None) -> None:
    """Do the demo's pretraining in the train image."""
    text = (ROOT / "recipes" / "demo-scratch.toml").read_text(encoding="utf-8")
    (work / "recipe.toml").write_text(shortened(text, steps) if steps else text, encoding="utf-8")
    source = Recipe.load(work / "recipe.toml").source.language
    folders = {f"/{kind}": artifact_of(demo, kind, source) for kind in (Kind.BLOCKS, Kind.TOKENIZER)}
    arguments = ["pretrain", "--recipe", "/made/recipe.toml", "--out", "/made/primary"]
    arguments += [part for folder in folders for part in (f"--{folder.strip('/')}", folder)]
    with running(image, arguments, {"/made": work, **folders}) as started:
        if code := started.process.wait():
            sys.exit(f"pretraining ended with {code} in the train image, and said why above")
    made = read_manifest(work / "primary")
    print(f"train image: pretrained {made.cost.steps} steps in {made.cost.elapsed_s:.0f} s")


def serve(image: str, bundle: Path) -> None:
    """See what the serve image's health check says, ask a question, and stop it as Kubernetes does."""
    with running(image, [], {}, idle=True) as started:
        started.wait_until_up()
        if started.is_healthy():
            sys.exit(f"the health check says that all is well where nothing answers. Is port {PORT} in use?")
    print("serve image: unhealthy where nothing answers")
    with running(image, ["/bundle", f"--port={PORT}"], {"/bundle": bundle}) as started:
        _wait_until_ready(started.process)
        if not started.is_healthy():
            sys.exit("the health check says that nothing is well beside a server that is ready")
        print("serve image: healthy when it is ready")
        _ask()
        started.process.send_signal(signal.SIGTERM)
        try:
            code = started.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            sys.exit(f"the server had not ended {STOP_S} s after SIGTERM")
    if code:
        sys.exit(f"the server ended with {code} on SIGTERM, but 0 is good order")
    print("serve image: ended with 0 on SIGTERM")


def _wait_until_ready(process: subprocess.Popen[str]) -> None:
    began = time.monotonic()
    while time.monotonic() < began + READY_S:
        if (code := process.poll()) is not None:
            sys.exit(f"the server ended with {code} before it was ready, and said why above")
        with contextlib.suppress(OSError), _answer("/v2/health/ready"):
            print(f"serve image: ready after {time.monotonic() - began:.1f} s")
            return
        time.sleep(0.1)
    sys.exit(f"the server was not ready after {READY_S} s")


def _ask() -> None:
    with _answer("/v2/models") as answer:
        name = json.load(answer)["models"][0]
    asked = {"text": "How do I sort a column?", "language": "en"}
    inputs = [{"name": key, "datatype": "BYTES", "shape": [1], "data": [value]} for key, value in asked.items()]
    with _answer(f"/v2/models/{name}/infer", json.dumps({"inputs": inputs}).encode()) as answer:
        outputs = {each["name"]: each["data"] for each in json.load(answer)["outputs"]}
    print(f"serve image: {asked['text']!r} -> {outputs['label'][0]} ({outputs['probability'][0]:.0%})")


def _answer(path: str, body: bytes | None = None) -> Any:
    headers = {"Content-Type": "application/json"}
    return urllib.request.urlopen(
        urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", body, headers), None, ANSWER_S
    )


def check(given: argparse.Namespace) -> None:
    """Do all of it."""
    given.work.mkdir(parents=True)
    os.chown(given.work, 10001, 10001)
    make_base(given.mirror)
    images = {name: build(name, given) for name in ("train", "serve")}
    for name, image in images.items():
        megabytes = {part: round(size / 1e6) for part, size in sizes(image).items()}
        print(f"{name} image, MB: {json.dumps(megabytes)}")
    train(images["train"], given.demo.resolve(), given.work.resolve(), given.steps)
    serve(images["serve"], given.demo.resolve() / "bundle")


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
    try:
        with interruptible():
            check(given)
    except Interruption as interruption:
        print("interrupted", file=sys.stderr)
        sys.exit(interruption.exit_code)


if __name__ == "__main__":
    main()
