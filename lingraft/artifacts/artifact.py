"""The contract between stages: a folder of safetensors and files under one verified JSON manifest.

A folder without a manifest is not an artifact. Loading checks every file's hash, or, where there are too many bytes to
read them twice, each file's when it is first used; combining artifacts that were not trained against the same primary
is an error that names both fingerprints.
"""

import contextlib
import hashlib
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from safetensors import SafetensorError

from lingraft.artifacts.files import atomic_folder, sha256_of, write_json
from lingraft.artifacts.manifest import MANIFEST, PART_FIELDS, Kind, Manifest, read_manifest
from lingraft.errors import AlignmentError, ArtifactError

if TYPE_CHECKING:
    from torch import Tensor  # steps without tensors are spared the second that PyTorch takes to import


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
        """Compare one file with its hash in the manifest."""
        expected = self.manifest.hash_of(name)
        actual = sha256_of(self.folder / name)
        if actual != expected:
            raise ArtifactError(
                f"{self.folder / name} was truncated or edited: its SHA-256 is {actual[:12]}, "
                f"the manifest says {expected[:12]}. Fetch or make the artifact again."
            )

    def copy_to(self, out: Path) -> None:
        """Copy the artifact to another folder."""
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
        """
        if self.fingerprint != expected:
            raise ArtifactError(
                f"{self.folder} has fingerprint {self.fingerprint}, not {expected}: its manifest was edited, or it is "
                "another artifact. Fetch it anew, or restore it from a backup."
            )


def _require_files(folder: Path, manifest: Manifest) -> None:
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    if missing := sorted(set(manifest.file_names) - present):
        raise ArtifactError(f"{folder} lacks {missing}. Fetch or make the artifact again.")
    if surplus := sorted(present - {MANIFEST, *manifest.file_names}):
        raise ArtifactError(f"{folder} holds {surplus}, which its manifest does not name. Remove them.")


def require_aligned(what: str, aligned_with: str | None, primary: str, again: str = "Adapt the language again") -> None:
    """Refuse to combine an artifact with a primary that it was not trained against.

    Args:
        what: name of the artifact for the message.
        aligned_with: fingerprint of the primary that the artifact was trained against.
        again: how such an artifact is made, for the message.
    """
    if aligned_with != primary:
        raise AlignmentError(
            f"{what} is aligned with primary {aligned_with}, not with the primary at hand, {primary}. "
            f"{again} on this primary, or fetch the primary it belongs to."
        )
