"""The contract between stages: a folder of safetensors and files under one verified JSON manifest.

A folder without its manifest does not exist. Loading checks every file's hash, or, where there are too many bytes to
read them twice, each file's when it is first used; combining artifacts that were not trained against the same primary
is an error that names both fingerprints.
"""

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pydantic
from safetensors import SafetensorError

from lingraft import __version__
from lingraft.errors import AlignmentError, ArtifactError
from lingraft.files import new_folder, sha256_of, write_json

if TYPE_CHECKING:
    from torch import Tensor  # steps without tensors are spared the second that PyTorch takes to import

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
_FACTS_OF_PARTS = ("fingerprints", "shapes", "dtypes")


class Kind(StrEnum):
    """The nouns of the house; each is one folder on disk."""

    TEXT = "text"
    TOKENIZER = "tokenizer"
    BLOCKS = "blocks"
    PRIMARY = "primary"
    MINI = "mini"
    EMBEDDINGS = "embeddings"
    TASK = "task"
    EVALUATION = "evaluation"
    SEARCH = "search"
    BUNDLE = "bundle"
    LANGUAGE = "language"
    """One language's part of a bundle, as it is published to endpoints that run."""
    REPORT = "report"
    TRAINING = "training"


class Cost(pydantic.BaseModel, frozen=True, extra="forbid"):
    """What training an artifact took."""

    steps: int = 0
    tokens: int = 0
    flops: float = pydantic.Field(0.0, description="By the paper's equations A1, A3 and A4, not counted by hardware.")
    elapsed_s: float = 0.0


class Manifest(pydantic.BaseModel, frozen=True, extra="forbid"):
    """Everything known about an artifact, beside its tensors."""

    kind: Kind
    format_version: int = FORMAT_VERSION
    library_version: str = __version__
    language: str | None = None
    fingerprints: dict[str, str] = pydantic.Field({}, description="Part name to SHA-256 of its tensors.")
    shapes: dict[str, dict[str, list[int]]] = pydantic.Field({}, description="Part name to tensor name to shape.")
    dtypes: dict[str, str] = pydantic.Field({}, description="Part name to the dtype of its tensors.")
    aligned_with: str | None = pydantic.Field(None, description="Fingerprint of the primary it was trained against.")
    tokenizer_hash: str | None = None
    data_hashes: dict[str, str] = {}
    recipe: dict[str, Any] = {}
    cost: Cost = Cost()
    details: dict[str, Any] = pydantic.Field({}, description="What only this kind of artifact has.")
    files: dict[str, str] = pydantic.Field({}, description="Relative path to SHA-256, every file but this one.")


def fingerprint(tensors: "Mapping[str, Tensor]") -> str:
    """SHA-256 over names, dtypes, shapes and bytes of tensors, in the order of their names."""
    import torch

    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


@dataclass
class Draft:
    """An artifact being written: put files into `folder`, tensors through `tensors`, facts into `facts`."""

    folder: Path
    kind: Kind
    facts: dict[str, Any] = field(default_factory=dict)
    _parts: dict[str, dict[str, Any]] = field(default_factory=dict)

    def tensors(self, part: str, tensors: "Mapping[str, Tensor]") -> str:
        """Save one part as `<part>.safetensors` and return its fingerprint."""
        from safetensors.torch import save_file

        owned = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        save_file(owned, self.folder / f"{part}.safetensors")
        mark = fingerprint(owned)
        self._parts.setdefault("fingerprints", {})[part] = mark
        self._parts.setdefault("shapes", {})[part] = {name: list(t.shape) for name, t in owned.items()}
        dtypes = sorted({str(tensor.dtype) for tensor in owned.values()})
        self._parts.setdefault("dtypes", {})[part] = ",".join(dtypes)
        return mark

    def share(self, other: "Artifact", names: Iterable[str]) -> None:
        """Take files of another artifact over, by hard links where the file system has them, and what is known of them.

        Args:
            other: whose files were verified.
            names: of the files, relative to its folder.
        """
        for name in names:
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            try:
                (self.folder / name).hardlink_to(other.folder / name)
            except OSError:  # another file system, or one without links: a copy says why where it fails, too
                shutil.copyfile(other.folder / name, self.folder / name)
            part = name.removesuffix(".safetensors")
            for fact in _FACTS_OF_PARTS:
                if part in (known := getattr(other.manifest, fact)):
                    self._parts.setdefault(fact, {})[part] = known[part]

    def manifest(self) -> Manifest:
        """The manifest of what has been put in so far."""
        files = {
            path.relative_to(self.folder).as_posix(): sha256_of(path)
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
        }
        return Manifest(kind=self.kind, files=files, **self._parts, **self.facts)


@contextlib.contextmanager
def create(folder: Path, kind: Kind) -> Iterator[Draft]:
    """Write an artifact: yields a draft, and puts the whole folder in place only if the body succeeds.

    Raises:
        ArtifactError: `folder` is not empty or cannot be written.
    """
    with new_folder(folder) as temporary:
        draft = Draft(temporary, kind)
        yield draft
        write_json(temporary / MANIFEST, draft.manifest().model_dump(mode="json"))


@dataclass(frozen=True)
class Artifact:
    """An artifact on disk, whose files are verified before they are used."""

    folder: Path
    manifest: Manifest
    deferred: bool = False
    """Whether a file's hash is checked when it is first used, rather than on loading."""
    origin: str | None = None
    """URI of the folder in object storage of which `folder` is a cache, with the manifest and some of the files."""

    @classmethod
    def load(cls, folder: Path, kind: Kind) -> Self:
        """Open an artifact of the kind expected, with every file's hash checked.

        Raises:
            ArtifactError: no manifest, another kind or format, or a file that is missing, surplus or changed.
        """
        found = cls.open(folder, kind)
        for name in found.manifest.files:
            found.verify(name)
        return cls(folder, found.manifest)

    @classmethod
    def open(cls, folder: Path, kind: Kind) -> Self:
        """Open an artifact of the kind expected, whose files are hashed by `verify` before they are used.

        For one with so many bytes that reading all of them would hold the work up.

        Raises:
            ArtifactError: no manifest, another kind or format, or a file that is missing or surplus.
        """
        manifest = read_manifest(folder)
        if manifest.kind is not kind:
            raise ArtifactError(
                f"{folder} is an artifact of kind {manifest.kind}, but one of kind {kind} is needed here. "
                f"Give the folder of a {kind} artifact."
            )
        _require_files(folder, manifest)
        return cls(folder, manifest, deferred=True)

    def verify(self, name: str) -> None:
        """Compare one file with its hash in the manifest.

        Raises:
            ArtifactError: it was truncated or edited.
        """
        actual, expected = sha256_of(self.folder / name), self.manifest.files[name]
        if actual != expected:
            raise ArtifactError(
                f"{self.folder / name} was truncated or edited: its SHA-256 is {actual[:12]}, "
                f"the manifest says {expected[:12]}. Fetch or make the artifact again."
            )

    def copy_to(self, out: Path) -> None:
        """Copy the artifact to another folder.

        Raises:
            ArtifactError: `out` is not empty or cannot be written.
        """
        with new_folder(out) as temporary:
            shutil.copytree(self.folder, temporary, dirs_exist_ok=True)

    def tensors(self, part: str) -> "dict[str, Tensor]":
        """Tensors of one part, on the CPU.

        Raises:
            ArtifactError: the artifact has no such part, or it was edited.
        """
        from safetensors.torch import load_file

        if part not in self.manifest.fingerprints:
            raise ArtifactError(
                f"{self.folder} has no part {part!r}, only {sorted(self.manifest.fingerprints)}. Make it anew."
            )
        if self.deferred:
            self.verify(f"{part}.safetensors")
        try:
            return load_file(self.folder / f"{part}.safetensors")
        except SafetensorError as error:
            raise ArtifactError(f"{self.folder / part}.safetensors is not readable: {error}. Make it anew.") from error

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the fingerprints of all parts: equal content, equal fingerprint."""
        marks = self.manifest.fingerprints or self.manifest.files
        return hashlib.sha256(json.dumps(marks, sort_keys=True).encode()).hexdigest()


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an artifact, of whatever kind; its files are not checked.

    Raises:
        ArtifactError: there is none, it is damaged, or of another format.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise ArtifactError(f"{folder} is not an artifact: it has no {MANIFEST}. Run the stage that makes it first.")
    try:
        raw = json.loads(path.read_bytes())
        version = raw.get("format_version")
        if version != FORMAT_VERSION:
            raise ArtifactError(
                f"{path} has format {version}; this lingraft reads format {FORMAT_VERSION}. Use one that reads it."
            )
        return Manifest.model_validate(raw)
    except (UnicodeDecodeError, json.JSONDecodeError, AttributeError, pydantic.ValidationError) as error:
        raise ArtifactError(f"{path} is damaged: {error}. Make the artifact again, or fetch it anew.") from error


def _require_files(folder: Path, manifest: Manifest) -> None:
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {MANIFEST}
    if missing := sorted(set(manifest.files) - present):
        raise ArtifactError(f"{folder} lacks {missing}. Fetch or make the artifact again.")
    if surplus := sorted(present - set(manifest.files)):
        raise ArtifactError(f"{folder} holds {surplus}, which its manifest does not name. Remove them.")


def require_aligned(what: str, aligned_with: str | None, primary: str) -> None:
    """Refuse to combine an artifact with a primary that it was not trained against.

    Args:
        what: name of the artifact for the message.
        aligned_with: fingerprint of the primary that the artifact was trained against.
        primary: fingerprint of the primary at hand.

    Raises:
        AlignmentError: the fingerprints differ; the message names both.
    """
    if aligned_with != primary:
        raise AlignmentError(
            f"{what} is aligned with primary {aligned_with}, not with the primary at hand, {primary}. "
            "Adapt the language again on this primary, or fetch the primary it belongs to."
        )
