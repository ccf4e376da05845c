"""Bundles in the registry: the content of versions, and the embeddings that a bundle may hold."""

import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from lingraft.artifacts.artifact import Kind
from lingraft.errors import ArtifactError
from lingraft.tracking.client import RetryingClient
from lingraft.tracking.promotion import decisions
from lingraft.tracking.promotion.bundle_gate import BundleChange, BundleContent
from lingraft.tracking.promotion.decisions import Record, effective_decisions, promotions_in_effect
from lingraft.tracking.versions import Version, champion_of, download_files


def bundle_content(client: RetryingClient, version: Version) -> BundleContent:
    """Read the content of a registered bundle from its manifest, the only file that is downloaded.

    Raises:
        TrackingError: the registry refuses, or stays down.
        ArtifactError: the manifest is damaged, or belongs to another kind of artifact.
    """
    with tempfile.TemporaryDirectory() as folder:
        found = download_files(client, version, Kind.BUNDLE, Path(folder) / "bundle", lambda _: ())
    return BundleContent.of(version.title, found.manifest)


def served_content(client: RetryingClient, version: Version | None) -> BundleContent | None:
    """Read the content of a bundle in production; of a damaged one, which is to be replaced, from its tags.

    Raises:
        TrackingError: the registry refuses, or stays down.
    """
    if version is None:
        return None
    try:
        return bundle_content(client, version)
    except ArtifactError:
        return BundleContent.of_tags(version.title, version.tags)


def served_examples(client: RetryingClient, name: str) -> Mapping[str, Mapping[str, str]] | None:
    """Return the champion's example texts for the endpoint's page: by language, texts by name of input.

    Returns:
        None if there is no champion, it has no examples, or its manifest is damaged.

    Raises:
        TrackingError: the registry refuses, or stays down.
    """
    content = served_content(client, champion_of(client, name))
    return (content.examples or None) if content else None


def bundle_change(
    client: RetryingClient, before: Version | None, after: Version | None, recorded: Version | None = None
) -> BundleChange:
    """Describe the change of production when one registered bundle replaces another.

    Args:
        client: MLflow, with retries.
        before: the champion.
        after: bundle that replaces it.
        recorded: the champion by the record of decisions.

    Raises:
        TrackingError: the registry refuses, or stays down.
        ArtifactError: the manifest of the new bundle is damaged.
    """
    new = bundle_content(client, after) if after else None
    return BundleChange(served_content(client, before), new, served_content(client, recorded))


def recorded_champion(found: Sequence[Version], records: Sequence[Record]) -> Version | None:
    """Return the champion by the record of decisions; the alias differs if somebody moved it by hand.

    Args:
        found: versions of the model that still exist.
        records: decisions about the model.
    """
    decided = effective_decisions(records)
    number = decided[-1].decision.after if decided else None
    return next((version for version in found if version.number == number), None)


def accepted_fingerprints(client: RetryingClient, project: str) -> set[str]:
    """Return the fingerprints of all artifacts that were promoted in a project and not rolled back."""
    by_model: dict[str, list[Record]] = defaultdict(list)
    for record in decisions.history(client, project):
        by_model[record.decision.model].append(record)
    promotions = (each for records in by_model.values() for each in promotions_in_effect(records))
    return {each.decision.fingerprint for each in promotions if each.decision.fingerprint}
