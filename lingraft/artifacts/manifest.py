"""The manifest of an artifact: what its files hold and how they were made, and the fingerprint of what counts.

The fingerprint covers all of the manifest that decides what the artifact does, and by the hashes in it all files but
logs. Whoever knows an artifact's fingerprint, from the registry's tags for example, notices every edit.
"""

import functools
import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import pydantic

from lingraft._version import __version__
from lingraft.errors import ArtifactError

FORMAT_VERSION = 2
MANIFEST = "manifest.json"
NOT_FINGERPRINTED = ("cost", "library_version", "logs", "recipe", "record")
"""Fields of a manifest that say how an artifact was made: they may differ between artifacts of one fingerprint."""
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
    """One language's part of a bundle, which has a fingerprint of its own."""
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
        """Return the SHA-256 of a file."""
        found = self.files.get(name) or self.logs.get(name)
        if found is None:
            raise ArtifactError(f"{self._damaged}: it names no file {name!r}. {_REMEDY}")
        return found

    def fingerprint_of(self, part: str) -> str:
        """Return the fingerprint of a part's tensors."""
        if part not in self.fingerprints:
            raise ArtifactError(f"{self._damaged}: it names no part {part!r}. {_REMEDY}")
        return self.fingerprints[part]

    def detail(self, name: str, of: Any) -> Any:
        """Return one of the details, converted to a type.

        Args:
            of: type, as pydantic understands it, such as `list[str]`.
        """
        return self._typed("details", self.details, name, of)

    def recorded(self, name: str, of: Any) -> Any:
        """Return an entry of the record, converted to a type."""
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
    """Return the fingerprint of an artifact from its manifest alone; its files are not read."""
    return read_manifest(folder).fingerprint


def _require_format(path: Path, version: object) -> None:
    if version == FORMAT_VERSION:
        return
    older = isinstance(version, int) and version < FORMAT_VERSION
    advice = "Make the artifact anew with this lingraft" if older else "Use one that reads it"
    raise ArtifactError(f"{path} has format {version}; this lingraft reads format {FORMAT_VERSION}. {advice}.")
