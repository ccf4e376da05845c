"""The contract between stages: a folder of safetensors and files under one verified JSON manifest.

A folder without a manifest is not an artifact. Loading checks every file's hash, or, where there are too many bytes to
read them twice, each file's when it is first used; combining artifacts that were not trained against the same primary
is an error that names both fingerprints.

The fingerprint covers all of the manifest that decides what the artifact does, and by the hashes in it all files but
logs. Whoever knows an artifact's fingerprint, from the registry's tags for example, notices every edit.
"""

import contextlib
import functools
import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Self

import pydantic
from safetensors import SafetensorError

from lingraft._version import __version__
from lingraft.artifacts.files import atomic_folder, sha256_of, write_json
from lingraft.errors import AlignmentError, ArtifactError

if TYPE_CHECKING:
    from torch import Tensor  # steps without tensors are spared the second that PyTorch takes to import

FORMAT_VERSION = 2
MANIFEST = "manifest.json"
NOT_FINGERPRINTED = ("cost", "library_version", "logs", "recipe", "record")
"""Fields of a manifest that say how an artifact was made: they may differ between artifacts of one fingerprint."""
MLFLOW_FILES = ("MLmodel", "registered_model_meta")
"""Files that `mlflow artifacts download` puts beside an artifact; lingraft does not read them."""
PART_FIELDS = ("fingerprints", "shapes", "dtypes")


def _relative_path(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or path.as_posix() != name or name in (".", MANIFEST):
        raise ValueError(f"{name!r} is no path of a file within the artifact")
    return name


FileHashes = dict[
    Annotated[str, pydantic.AfterValidator(_relative_path)], Annotated[str, pydantic.Field(pattern=r"^[0-9a-f]{64}$")]
]


class Kind(StrEnum):
    """Kinds of artifacts."""

    TEXT = "text"
    TOKENIZER = "tokenizer"
    BLOCKS = "blocks"
    VECTORS = "vectors"
    """Static vectors of a language's pieces, which `aligned` initialisation compares."""
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
    """Cost of training an artifact."""

    steps: int = 0
    tokens: int = 0
    flops: float = pydantic.Field(0.0, description="By the paper's equations A1, A3 and A4, not counted by hardware.")
    elapsed_s: float = 0.0


class Manifest(pydantic.BaseModel, frozen=True, extra="forbid"):
    """Facts about an artifact, and hashes of its files and tensors."""

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
    record: dict[str, Any] = pydantic.Field(
        {}, description="How this kind of artifact was made, such as on which device; the fingerprint leaves it out."
    )
    files: FileHashes = pydantic.Field({}, description="Relative path to SHA-256, every file but this one and logs.")
    logs: FileHashes = pydantic.Field(
        {}, description="Relative path to SHA-256 of files that only record how it was made, such as a learning curve."
    )

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the manifest without `NOT_FINGERPRINTED`: equal content, equal fingerprint."""
        return json_fingerprint(self.model_dump(mode="json", exclude={*NOT_FINGERPRINTED}))

    @property
    def file_names(self) -> list[str]:
        """Relative paths of all files but the manifest."""
        return [*self.files, *self.logs]

    def hash_of(self, name: str) -> str:
        """Return the SHA-256 of a file.

        Raises:
            ArtifactError: the manifest names no such file.
        """
        found = self.files.get(name) or self.logs.get(name)
        if found is None:
            raise ArtifactError(f"{self._damaged}: it names no file {name!r}. {_REMEDY}")
        return found

    def fingerprint_of(self, part: str) -> str:
        """Return the fingerprint of a part's tensors.

        Raises:
            ArtifactError: the manifest names no such part.
        """
        if part not in self.fingerprints:
            raise ArtifactError(f"{self._damaged}: it names no part {part!r}. {_REMEDY}")
        return self.fingerprints[part]

    def detail(self, name: str, of: Any) -> Any:
        """Return one of the details, converted to a type.

        Args:
            of: type, as pydantic understands it, such as `list[str]`.

        Raises:
            ArtifactError: the detail is missing, or of another type.
        """
        return self._typed("details", self.details, name, of)

    def recorded(self, name: str, of: Any) -> Any:
        """Return an entry of the record, converted to a type.

        Raises:
            ArtifactError: the entry is missing, or of another type.
        """
        return self._typed("record", self.record, name, of)

    @property
    def _damaged(self) -> str:
        return f"the manifest of {self.kind} {self.fingerprint[:12]} is damaged"

    def _typed(self, where: str, values: Mapping[str, Any], name: str, of: Any) -> Any:
        if name not in values:
            raise ArtifactError(f"{self._damaged}: {where}.{name} is missing. {_REMEDY}")
        try:
            return _adapter(of).validate_python(values[name])
        except pydantic.ValidationError as error:
            problem = error.errors()[0]
            place = ".".join(map(str, (where, name, *problem["loc"])))
            raise ArtifactError(f"{self._damaged}: {place}: {problem['msg']}. {_REMEDY}") from error


_REMEDY = "Make the artifact again, or fetch it anew."


@functools.cache
def _adapter(of: Any) -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(of)


def _canonical(value: Any) -> bytes:
    """JSON in its canonical form; docs/guides/registry.md says how other programs compute it."""
    return json.dumps(value, sort_keys=True).encode()


def json_fingerprint(value: Any) -> str:
    """Return the SHA-256 of a JSON value in its canonical form."""
    return hashlib.sha256(_canonical(value)).hexdigest()


def fingerprint(tensors: "Mapping[str, Tensor]") -> str:
    """Return the SHA-256 over names, dtypes, shapes and bytes of tensors, in the order of their names."""
    import torch

    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


@dataclass
class Draft:
    """An artifact that is being written: its files go into `folder`, its tensors to `tensors`, its facts to `facts`."""

    folder: Path
    kind: Kind
    facts: dict[str, Any] = field(default_factory=dict)
    _parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    _logs: set[str] = field(default_factory=set)

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

    def log(self, name: str, text: str) -> None:
        """Write a text file that only records how the artifact was made; the fingerprint leaves it out."""
        (self.folder / name).write_text(text, encoding="utf-8")
        self._logs.add(name)

    def share(self, other: "Artifact", names: Iterable[str]) -> None:
        """Share files with another artifact, by hard links where the file system has them, and copy their fingerprints.

        Args:
            names: paths of the files, relative to its folder.
        """
        for name in names:
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            try:
                (self.folder / name).hardlink_to(other.folder / name)
            except OSError:  # another file system, or one without links: a copy says why where it fails, too
                shutil.copyfile(other.folder / name, self.folder / name)
            part = name.removesuffix(".safetensors")
            for fact in PART_FIELDS:
                if part in (known := getattr(other.manifest, fact)):
                    self._parts.setdefault(fact, {})[part] = known[part]

    def manifest(self) -> Manifest:
        """Return the manifest of everything written so far."""
        hashes = {
            path.relative_to(self.folder).as_posix(): sha256_of(path)
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
        }
        logs = {name: hashes.pop(name) for name in sorted(self._logs)}
        return Manifest(kind=self.kind, files=hashes, logs=logs, **self._parts, **self.facts)


@contextlib.contextmanager
def create(folder: Path, kind: Kind) -> Iterator[Draft]:
    """Write an artifact: yields a draft, and puts the whole folder in place only if the body succeeds.

    Raises:
        ArtifactError: `folder` is not empty or cannot be written.
    """
    with atomic_folder(folder) as temporary:
        draft = Draft(temporary, kind)
        yield draft
        write_json(temporary / MANIFEST, draft.manifest().model_dump(mode="json"))


@dataclass(frozen=True)
class Artifact:
    """An artifact on disk, whose files are verified before their use."""

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
        for name in found.manifest.file_names:
            found.verify(name)
        return cls(folder, found.manifest)

    @classmethod
    def open(cls, folder: Path, kind: Kind) -> Self:
        """Open an artifact of the kind expected, whose files are hashed by `verify` before they are used.

        It suits an artifact with so many bytes that reading all of them would delay the work.

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
        expected = self.manifest.hash_of(name)
        actual = sha256_of(self.folder / name)
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
        with atomic_folder(out) as temporary:
            shutil.copytree(self.folder, temporary, dirs_exist_ok=True)

    def tensors(self, part: str) -> "dict[str, Tensor]":
        """Load the tensors of one part, on the CPU.

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
        """Fingerprint of the manifest: equal content, equal fingerprint."""
        return self.manifest.fingerprint

    def require_fingerprint(self, expected: str) -> None:
        """Refuse an artifact that is not the one expected, whatever its own manifest says.

        Args:
            expected: fingerprint from a source that is trusted, such as the registry's tags.

        Raises:
            ArtifactError: the fingerprints differ; the message names both.
        """
        if self.fingerprint != expected:
            raise ArtifactError(
                f"{self.folder} has fingerprint {self.fingerprint}, not {expected}: its manifest was edited, or it is "
                "another artifact. Fetch it anew, or restore it from a backup."
            )


def read_manifest(folder: Path) -> Manifest:
    """Load the manifest of an artifact of any kind; its files are not checked.

    Raises:
        ArtifactError: there is none, it is damaged, or of another format.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise ArtifactError(f"{folder} is not an artifact: it has no {MANIFEST}. Run the stage that makes it first.")
    try:
        raw = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path} is damaged: {error}. {_REMEDY}") from error
    if not isinstance(raw, dict):
        raise ArtifactError(f"{path} is damaged: it holds no JSON object. {_REMEDY}")
    _require_format(path, raw.get("format_version"))
    try:
        manifest = Manifest.model_validate(raw)
    except (pydantic.ValidationError, RecursionError) as error:
        raise ArtifactError(f"{path} is damaged: {error}. {_REMEDY}") from error
    # What pydantic would convert, such as "3" to 3, would give others who recompute the fingerprint another one.
    written = manifest.model_dump(mode="json")
    if differing := [name for name in written if name not in raw or _canonical(written[name]) != _canonical(raw[name])]:
        raise ArtifactError(f"{path} is damaged: {differing} are not as lingraft writes them. {_REMEDY}")
    return manifest


def artifact_fingerprint(folder: Path) -> str:
    """Return the fingerprint of an artifact from its manifest alone; its files are not read.

    Raises:
        ArtifactError: there is no artifact, or its manifest is damaged.
    """
    return read_manifest(folder).fingerprint


def _require_format(path: Path, version: object) -> None:
    if version == FORMAT_VERSION:
        return
    older = isinstance(version, int) and version < FORMAT_VERSION
    advice = "Make the artifact anew with this lingraft" if older else "Use one that reads it"
    raise ArtifactError(f"{path} has format {version}; this lingraft reads format {FORMAT_VERSION}. {advice}.")


def _require_files(folder: Path, manifest: Manifest) -> None:
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    if missing := sorted(set(manifest.file_names) - present):
        raise ArtifactError(f"{folder} lacks {missing}. Fetch or make the artifact again.")
    if surplus := sorted(present - {MANIFEST, *MLFLOW_FILES, *manifest.file_names}):
        raise ArtifactError(f"{folder} holds {surplus}, which its manifest does not name. Remove them.")


def require_aligned(what: str, aligned_with: str | None, primary: str, again: str = "Adapt the language again") -> None:
    """Refuse to combine an artifact with a primary that it was not trained against.

    Args:
        what: name of the artifact for the message.
        aligned_with: fingerprint of the primary that the artifact was trained against.
        again: how such an artifact is made, for the message.

    Raises:
        AlignmentError: the fingerprints differ; the message names both.
    """
    if aligned_with != primary:
        raise AlignmentError(
            f"{what} is aligned with primary {aligned_with}, not with the primary at hand, {primary}. "
            f"{again} on this primary, or fetch the primary it belongs to."
        )
