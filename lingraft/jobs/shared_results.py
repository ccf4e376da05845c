"""What was made once from the same is not made again, in whichever pod or run it is asked for.

`LINGRAFT_RESULTS` says where results and checkpoints are shared: a folder that all pods mount, or a URI that fsspec
understands. Unset, nothing is. Each result has a folder there of its own, named after the hash of all that decides it:

    <kind>-<key>/made-from.json     all that decides it, to be read by people
                 result/            what the job leaves
                 result.training/   checkpoints, until the result is there

So a step that was killed goes on where it was, and one that has been done is not done again, also where a pipeline's
own cache would miss it; nor is it taken for done where that would hit wrongly, since the key holds what that leaves
out: the content of data, and the image.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import shutil
import uuid
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from lingraft.artifacts.artifact import MANIFEST, Artifact
from lingraft.artifacts.files import atomic_folder, sha256_of, write_json
from lingraft.artifacts.remote import uri_of
from lingraft.artifacts.storage import RemotePath
from lingraft.artifacts.sync import RESULTS_VARIABLE, shared_cache_dir
from lingraft.console import say
from lingraft.errors import ArtifactError
from lingraft.jobs.job import Job
from lingraft.training.schedule import read_curve

if TYPE_CHECKING:
    from lingraft.training.schedule import MetricsCallback

IMAGE_VARIABLE = "LINGRAFT_IMAGE"
"""Environment variable: the image that a step runs in, by its digest where it has one."""
_RESULT, _TRAINING = "result", ".training"
_DECISIVE = ("torch", "sentencepiece", "transformers")
"""Packages whose version may change what is made."""


def get_or_run(job: Job, watch: "MetricsCallback") -> Artifact:
    """Do a job, or take what the same job has made before.

    Args:
        job: whose output is filled.
        watch: is told the whole learning curve, whoever has trained it.

    Raises:
        ArtifactError: the result cannot be written, or another process makes the same at this moment.
        MissingExtraError: the place is a URI that needs a client that is not installed.
    """
    if not (where := os.environ.get(RESULTS_VARIABLE)):
        job.make(job.out, watch)
        return Artifact.load(job.made, job.kind)
    decisive = cache_key(job)
    with shared_cache_dir(where, f"{job.kind}-{_hash(decisive)}") as folder:
        write_json(folder / "made-from.json", decisive)
        result = folder / _RESULT
        if found := _load_result(job, result):
            say(f"{job.title}: made before from the same, taken from {folder}")
            for point in read_curve(found.folder):
                watch(point)
        else:
            _run(job, result, watch)
        with atomic_folder(job.out) as copy:
            shutil.copytree(result, copy, dirs_exist_ok=True)
    return Artifact.load(job.made, job.kind)


def _run(job: Job, result: Path, watch: "MetricsCallback") -> None:
    """Make it, unless somebody else who did the same was faster."""
    try:
        job.make(result, watch)
    except ArtifactError:
        if not _load_result(job, result):
            raise


def has_result(job: Job) -> bool:
    """Whether there is a result for `done` to take; for whoever would have to start a machine to make it."""
    if not (where := os.environ.get(RESULTS_VARIABLE)):
        return False
    inner = PurePosixPath(f"{job.kind}-{_hash(cache_key(job))}", _RESULT, job.part, MANIFEST)
    uri = uri_of(where)
    return (RemotePath.of(uri) / inner if uri else Path(where) / inner).exists()


def cache_key(job: Job) -> dict[str, Any]:
    """All that decides what a job makes, as JSON can hold it.

    Raises:
        ArtifactError: an input is not there.
    """
    versions = {name: importlib.metadata.version(name) for name in _DECISIVE if _installed(name)}
    code = {"lingraft": _source_hash(), "image": os.environ.get(IMAGE_VARIABLE), **versions}
    return {"kind": job.kind, **job.made_from, "outside": dict(job.outside()), "code": code}


def _hash(decisive: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:32]


@functools.cache
def _source_hash() -> str:
    """SHA-256 over the library's own files: without an image's digest, the version alone would be a promise."""
    root = Path(__file__).parents[1]
    names = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.py"))
    return hashlib.sha256("\n".join(f"{name} {sha256_of(root / name)}" for name in names).encode()).hexdigest()


def _installed(package: str) -> bool:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version(package)
        return True
    return False


def _load_result(job: Job, result: Path) -> Artifact | None:
    """What was made before, if all of it is there; what is damaged is set aside.

    A stage that was killed between its result and the end of its checkpoints sees to both itself.
    """
    made = result / job.part if job.part else result
    if not made.exists() or made.with_name(f"{made.name}{_TRAINING}").exists():
        return None
    try:
        return Artifact.load(made, job.kind)
    except ArtifactError as error:
        aside = result.with_name(f"{result.name}.damaged-{uuid.uuid4().hex}")
        with contextlib.suppress(FileNotFoundError):  # another pod was faster
            result.rename(aside)
        say(f"{job.title}: what was made before is of no use, and was set aside as {aside}: {error}")
        return None
