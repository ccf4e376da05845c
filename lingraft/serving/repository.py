"""Model repository of the Open Inference Protocol: bundles and languages come and go while the server answers.

A bundle is loaded from one of the folders below the repository's; a server that starts anew serves what it was started
with.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import pydantic

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.bundle.format import Precision, body_fingerprint
from lingraft.bundle.language_part import language_files, language_fingerprint
from lingraft.config.encoder import EncoderShape
from lingraft.errors import LingraftError, RequestError, ServingError
from lingraft.serving.bundle import Bundle, ServedLanguage, open_language
from lingraft.serving.logs import log_event
from lingraft.serving.requests import refuse_invalid
from lingraft.serving.served_bundles import ServedBundles


class Change(pydantic.BaseModel, strict=True, frozen=True, extra="forbid"):
    """Parameters of a request to load or unload."""

    bundle: Annotated[str, pydantic.Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] | None = None
    """Folder of the repository; if absent, the bundle that the server was started with, read anew."""
    language: str | None = None
    """Language of the bundle; if absent, all of it."""


class _ChangeRequest(pydantic.BaseModel, strict=True, frozen=True, extra="forbid"):
    parameters: Change = Change()


def parse_change(body: bytes) -> Change:
    """Parse the JSON of a request to load or unload; an empty body has no parameters.

    Raises:
        RequestError: the body is not JSON, or has other parameters.
    """
    with refuse_invalid():
        return _ChangeRequest.model_validate_json(body or b"{}").parameters


class Repository:
    """Bundles that a server was started with, and the folder of those that may take their places."""

    def __init__(self, served: ServedBundles, folder: Path, precision: Precision | None) -> None:
        """Remember what the server was started with.

        Raises:
            ServingError: there is no such folder.
        """
        if not folder.is_dir():
            raise ServingError(f"--repository {folder} is no folder. Create or mount it.")
        self._served = served
        self._folder = folder
        self._precision = precision
        self.started = {name: bundle.folder for name, bundle in served.bundles.items()}
        """Folders by name."""
        self.thread = ThreadPoolExecutor(1, "repository")
        """Makes one change at a time."""

    def index(self) -> list[dict[str, str]]:
        """Return the protocol's index: which bundles are loaded."""
        loaded = self._served.bundles
        return [
            {
                "name": name,
                "version": "",
                "state": "READY" if name in loaded else "UNAVAILABLE",
                "reason": "" if name in loaded else "unloaded",
            }
            for name in self.started
        ]

    def load(self, name: str, change: Change) -> None:
        """Serve a bundle, or a language of it, once its hashes, its fingerprints and its self-test are right.

        Raises:
            RequestError: it cannot be served; the message has the reason. What was served is served on.
        """
        folder = self._folder / change.bundle if change.bundle else self.started[name]
        try:
            if change.language is None:
                self._served.put_bundle(self._open_bundle(name, folder))
            else:
                self._served.put_language(name, change.language, self._open_language(name, folder, change.language))
        except LingraftError as error:
            raise RequestError(f"{error} What was served is served on.") from error
        except Exception as error:  # files with the right hashes may still be no tensors
            raise RequestError(
                f"{folder} cannot be opened: {type(error).__name__}: {error}. What was served is served on. Export the "
                "bundle again."
            ) from error
        log_event("loaded", bundle=name, folder=str(folder), language=change.language or "all")

    def unload(self, name: str, change: Change) -> None:
        """Stop serving a bundle or a language; requests that were taken on are answered.

        Raises:
            RequestError: it is not served, the language is the bundle's last one, or a folder is named.
        """
        if change.bundle:
            raise RequestError(f"{name!r} is unloaded whatever its folder is. Leave out the parameter 'bundle'.")
        try:
            if change.language is None:
                self._served.remove_bundle(name)
            else:
                self._served.remove_language(name, change.language)
        except ServingError as error:
            raise RequestError(str(error)) from error
        log_event("unloaded", bundle=name, language=change.language or "all")

    def _open_bundle(self, name: str, folder: Path) -> Bundle:
        bundle = Bundle.load(folder, self._precision, shared=self._served.opened_files)
        if bundle.name != name:
            raise ServingError(f"{folder} is a bundle of {bundle.name!r}, not of {name!r}. Load it under its own name.")
        return bundle

    def _open_language(self, name: str, folder: Path, tag: str) -> ServedLanguage:
        """Open a language of a bundle, whose other languages are not read."""
        served = self._served[name]
        artifact = Artifact.open(folder, Kind.BUNDLE)
        language_fingerprint(artifact.manifest, tag)
        _require_body(artifact, served)
        for file in language_files(artifact.manifest, tag):
            artifact.verify(file)
        return open_language(artifact, tag, self._served.opened_files, served.source)


def _require_body(artifact: Artifact, served: Bundle) -> None:
    """Refuse a language of another body, whose table would give plausible nonsense, or of other labels."""
    made_for = body_fingerprint(artifact.manifest, served.precision)
    if made_for != served.body_fingerprint:
        raise ServingError(
            f"{artifact.folder} was made for body {made_for[:12]} in {served.precision}, and {served.name!r} has "
            f"{served.body_fingerprint[:12]}. Load the whole bundle, without a language."
        )
    labels = artifact.manifest.detail("labels", list[str])
    shape = artifact.manifest.detail("shape", EncoderShape)
    if (labels, shape) != (served.labels, served.shape):
        raise ServingError(
            f"{artifact.folder} was made for labels {labels} and shape ({shape}), and {served.name!r} is served with "
            f"{served.labels} and ({served.shape}). Load the whole bundle, without a language."
        )
