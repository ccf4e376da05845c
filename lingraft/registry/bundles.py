"""Bundles in the registry: what a version holds, and which embeddings may be in one."""

import tempfile
from collections import defaultdict
from pathlib import Path

from lingraft.artifact import Kind
from lingraft.registry.bundle_gate import BundleChange, BundleContent
from lingraft.tracking import decisions
from lingraft.tracking.decisions import Record, standing_promotions
from lingraft.tracking.server import Asking
from lingraft.tracking.versions import Version, bring_some


def content_of(ask: Asking, version: Version) -> BundleContent:
    """The facts of a registered bundle; only its manifest is downloaded.

    Raises:
        TrackingError: the registry refuses, or stays down.
        ArtifactError: the manifest is damaged, or that of another kind of artifact.
    """
    with tempfile.TemporaryDirectory() as folder:
        found = bring_some(ask, version, Kind.BUNDLE, Path(folder) / "bundle", lambda _: ())
    return BundleContent.of(version.title, found.manifest)


def change_of(ask: Asking, before: Version | None, after: Version | None) -> BundleChange:
    """What changes if one registered bundle takes the place of another.

    Raises:
        TrackingError: the registry refuses, or stays down.
        ArtifactError: a manifest is damaged.
    """
    contents = [content_of(ask, version) if version else None for version in (before, after)]
    return BundleChange(*contents)


def accepted(ask: Asking, project: str) -> set[str]:
    """Fingerprints of all that was promoted in a project, but for what was taken back."""
    by_model: dict[str, list[Record]] = defaultdict(list)
    for record in decisions.history(ask, project):
        by_model[record.decision.model].append(record)
    promotions = (each for records in by_model.values() for each in standing_promotions(records))
    return {each.decision.fingerprint for each in promotions if each.decision.fingerprint}
