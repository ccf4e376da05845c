"""Model repository of the Open Inference Protocol: bundles and languages come and go while the server answers."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import pydantic
from grpc_interceptor.exceptions import Unimplemented
from kserve import ModelRepository

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.bundle.format import Precision, body_fingerprint
from lingraft.bundle.language_part import language_files, language_fingerprint
from lingraft.config.encoder import EncoderShape
from lingraft.errors import LingraftError, RequestError, ServingError, UnknownModelError
from lingraft.serving.bundle import Bundle, ServedLanguage, open_language
from lingraft.serving.model import EndpointModel, ServingContext
from lingraft.serving.served_bundles import ServedBundles
from lingraft.serving.served_models import served_models

_LOGGER = logging.getLogger("kserve")


class Change(pydantic.BaseModel, strict=True, frozen=True, extra="forbid"):
    """Parameters of a request to load or unload."""

    bundle: Annotated[str, pydantic.Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] | None = None
    """Folder of the repository; if absent, the bundle that the server was started with, read anew."""
    language: str | None = None
    """Language of the bundle; if absent, all of it."""
    unload_dependents: bool = False
    """Sent by Triton's client; no bundle depends on another."""


class _ChangeRequest(pydantic.BaseModel, strict=True, frozen=True, extra="forbid"):
    parameters: Change = Change()


class Repository(ModelRepository):  # type: ignore[misc]  # kserve has no types
    """Models that are served, the bundles that a server was started with, and the folder of those that may come."""

    def __init__(self, served: ServedBundles, engine: ServingContext) -> None:
        """Make the models of bundles."""
        super().__init__()
        self._folder: Path | None = engine.settings.repository
        if self._folder and not self._folder.is_dir():
            raise ServingError(f"--repository {self._folder} is no folder. Create or mount it.")
        self._served = served
        self._engine = engine
        self._precision: Precision | None = engine.settings.precision
        self._started = {name: bundle.folder for name, bundle in served.bundles.items()}
        self._thread = ThreadPoolExecutor(1, "repository")
        self._update()

    def index(self) -> list[dict[str, str]]:
        """Return the protocol's index: which bundles are loaded."""
        loaded = self._served.bundles
        return [
            {"name": name, "version": "", "state": "READY" if name in loaded else "UNAVAILABLE", "reason": ""}
            for name in self._started
        ]

    def load(self, name: str) -> bool:
        """Refuse KServe's own call, which has no parameters and is not asked whether there is a repository."""
        raise Unimplemented("Load and unload over REST: POST /v2/repository/models/NAME/load.")

    unload = load

    async def change(self, make: Callable[[str, Change], None], name: str, body: bytes) -> None:
        """Load or unload, as the body of a request says, one change at a time."""
        try:
            change = _ChangeRequest.model_validate_json(body or b"{}").parameters
        except ValueError as error:
            raise RequestError(f"the body is not a request to load or unload: {error}") from error
        await asyncio.get_running_loop().run_in_executor(self._thread, make, name, change)

    def load_bundle(self, name: str, change: Change) -> None:
        """Serve a bundle, or a language of it, once its hashes, its fingerprints and its self-test are right."""
        parent = self._require(name)
        folder = parent / change.bundle if change.bundle else self._started[name]
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
        self._update()
        _LOGGER.info("Loaded %s of bundle %s from %s", change.language or "all languages", name, folder)

    def unload_bundle(self, name: str, change: Change) -> None:
        """Stop serving a bundle or a language; requests that were taken on are answered."""
        self._require(name)
        try:
            if change.language is None:
                self._served.remove_bundle(name)
            else:
                self._served.remove_language(name, change.language)
        except ServingError as error:
            raise RequestError(str(error)) from error
        self._update()
        _LOGGER.info("Unloaded %s of bundle %s", change.language or "all languages", name)

    def _require(self, name: str) -> Path:
        if self._folder is None:
            raise RequestError("this server loads and unloads nothing. Start it with --repository FOLDER.")
        if name not in self._started:
            raise UnknownModelError(f"there is no bundle {name[:80]!a}; there are {sorted(self._started)}.")
        return self._folder

    def _update(self) -> None:
        models = served_models(self._served.bundles)
        self.models = {name: EndpointModel(name, served, self._engine) for name, served in models.items()}

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
