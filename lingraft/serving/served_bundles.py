"""The bundles that are served at the moment; bundles and languages come and go while requests are answered.

A bundle is immutable. A change replaces the bundle by a new one. A request takes the bundle once, when it is tokenized,
and finishes with it, so that no answer mixes two versions.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from lingraft.bundle.format import Precision
from lingraft.errors import ServingError
from lingraft.serving.bundle import Bundle, OpenedFiles, ServedLanguage


class ServedBundles:
    """Served bundles by name. One thread may change them while others read."""

    def __init__(self, bundles: Iterable[Bundle]) -> None:
        """Hold bundles whose self-tests have passed."""
        self._bundles: dict[str, Bundle] = {}
        for bundle in bundles:
            if bundle.name in self._bundles:
                raise ServingError(f"two bundles are named {bundle.name!r}. Give one for each task.")
            self._bundles[bundle.name] = bundle
        if not self._bundles:
            raise ServingError("there is no bundle to serve. Give its folder.")

    @classmethod
    def load(cls, folders: Iterable[Path], precision: Precision | None = None) -> "ServedBundles":
        """Open bundles, and run the self-test of every language; equal tables and tokenizers are opened once."""
        shared = OpenedFiles.from_languages()
        bundles = [Bundle.load(folder, precision, shared=shared) for folder in folders]
        for bundle in bundles:
            bundle.run_self_test()
        return cls(bundles)

    @property
    def bundles(self) -> Mapping[str, Bundle]:
        """Snapshot of the bundles, by name."""
        return dict(self._bundles)

    @property
    def opened_files(self) -> OpenedFiles:
        """Tables and tokenizers that are open now, for a new language to share."""
        return OpenedFiles.from_languages(
            each for bundle in self.bundles.values() for each in bundle.languages.values()
        )

    def __getitem__(self, name: str) -> Bundle:
        if name not in self._bundles:
            raise ServingError(f"{name!r} is not loaded; {sorted(self._bundles)} are.")
        return self._bundles[name]

    def put_bundle(self, bundle: Bundle) -> None:
        """Add a bundle, or replace it, after its self-test has passed."""
        bundle.run_self_test()
        self._bundles[bundle.name] = bundle

    def remove_bundle(self, name: str) -> None:
        """Remove a bundle."""
        del self._bundles[self[name].name]

    def put_language(self, name: str, tag: str, language: ServedLanguage) -> None:
        """Add a language to a bundle, or replace it, after its self-test has passed."""
        bundle = self[name]
        replace(bundle, languages={tag: language}).run_self_test()
        self._bundles[name] = replace(bundle, languages={**bundle.languages, tag: language})

    def remove_language(self, name: str, tag: str) -> None:
        """Remove a language from a bundle."""
        bundle = self[name]
        languages = {each: known for each, known in bundle.languages.items() if each != tag}
        if not languages or tag not in bundle.languages:
            raise ServingError(f"{name!r} speaks {sorted(bundle.languages)}; {tag!r} cannot be taken away from that.")
        self._bundles[name] = replace(bundle, languages=languages)
