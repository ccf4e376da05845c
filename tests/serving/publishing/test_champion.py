"""The registry's champion is published: over a real MLflow server, its files brought one by one."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lingraft import tracking
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.artifacts.names import bundle_name
from lingraft.cli import app
from lingraft.errors import PublicationError
from lingraft.serving.publishing.follower import Follower
from lingraft.serving.publishing.publications import Publications
from lingraft.serving.served_bundles import ServedBundles
from lingraft.tracking.promotion.champion import ChampionFollower, poll_once
from lingraft.tracking.versions import champion_of, version_of
from tests.tiny import Tiny
from tests.tracking.promotion import conftest as stores
from tests.tracking.promotion.project import Project
from tests.tracking_stores import quiet

pytestmark = [quiet, pytest.mark.integration]
documents, pods, overlay, database, server, remote = (
    stores.documents,
    stores.pods,
    stores.overlay,
    stores.database,
    stores.server,
    stores.remote,
)
TASK = "topic"


@pytest.fixture
def make_champion(remote: Project, tiny: Tiny, german: Path) -> Callable[..., int]:
    """Registers a bundle, and makes it champion; embeddings of all languages have been accepted by the gate."""
    remote.promote(remote.primary, remote.register(remote.primary, Artifact.load(tiny.primary, Kind.PRIMARY)))
    remote.accept(tiny.embeddings["de"])
    remote.accept(tiny.embeddings["tr"])
    remote.register_learned(Artifact.load(german.with_name("de"), Kind.EMBEDDINGS), 0.5)
    assert remote.promote(remote.embeddings, 2).moved

    def make(bundle: Path, **allowed: object) -> int:
        number = remote.register(bundle_name(remote.recipe, TASK), Artifact.load(bundle, Kind.BUNDLE))
        assert remote.promote(bundle_name(remote.recipe, TASK), number, **allowed).after == number
        return number

    return make


def test_an_endpoint_follows_the_champion_and_the_registry_says_so(
    make_champion: Callable[..., int],
    remote: Project,
    started: Path,
    german: Path,
    turkish: Path,
    foreign: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    model, publications = bundle_name(remote.recipe, TASK), Publications(folder)
    served = ServedBundles.load([started])
    endpoint = Follower(served, folder, every_s=60)
    endpoint.poll()
    first = make_champion(started)
    monkeypatch.setenv("LINGRAFT_TRACKING_WAIT_S", "0")
    with tracking.retrying_client() as client:
        champion = ChampionFollower(client, model, folder, "prod", started, keep=3)

        def told(number: int) -> str | None:
            return version_of(client, model, number).tags.get("endpoint.prod")

        def look() -> None:
            champion.poll()
            endpoint.poll()
            champion.poll()

        look()
        assert [*publications.languages()] == []  # the server was started with it
        assert told(first) == "de, en served"

        second = make_champion(german)
        with monkeypatch.context() as patch:
            patch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
            poll_once(champion)
        assert "What is served is served on" in capfd.readouterr().err
        assert [*publications.languages()] == []
        look()
        assert [*publications.languages()] == [(TASK, "de")]
        assert served[TASK].languages["de"].table_hash == fingerprint(german, "de")
        assert (told(first), told(second)) == (None, "de, en served")

        make_champion(turkish)  # German as in the beginning, and Turkish
        look()
        assert publications.read(TASK, "de", 2).action == "restore"
        assert served[TASK].languages["de"].table_hash == fingerprint(started, "de")
        assert set(served[TASK].languages) == {"en", "de", "tr"}

        back = ["registry", "rollback", model, "--drop-language", "tr"]
        CliRunner().invoke(app, back, catch_exceptions=False)
        look()
        assert served[TASK].languages["de"].table_hash == fingerprint(german, "de")
        assert set(served[TASK].languages) == {"en", "de"}

        fourth = make_champion(foreign)
        look()
        assert served[TASK].languages["de"].table_hash == fingerprint(german, "de")
        assert "made for body" in str(told(fourth))
        lineage = CliRunner().invoke(app, ["registry", "lineage", "--project", remote.recipe.name]).stdout
        assert "endpoint prod: " in lineage or "made for body" in str(champion_of(client, model))


def test_who_looks_once_is_told_what_servers_made_of_it_and_so_is_the_registry(
    make_champion: Callable[..., int], remote: Project, started: Path, german: Path, foreign: Path, folder: Path
) -> None:
    model = bundle_name(remote.recipe, TASK)
    command = ["publish", "champion", model, "--to", str(folder), "--started", str(started), "--once", "--wait=60"]
    with Follower(ServedBundles.load([started]), folder, every_s=0.05).running():
        number = make_champion(german)
        assert re.search(r"topic de 1 on \S+: served", CliRunner().invoke(app, command, catch_exceptions=False).stdout)
        with tracking.retrying_client() as client:
            assert version_of(client, model, number).tags["endpoint.lingraft"] == "de, en served"
        number = make_champion(foreign)
        with pytest.raises(PublicationError, match=r"are refusals[\s\S]*made for body"):
            CliRunner().invoke(app, command, catch_exceptions=False)
        with tracking.retrying_client() as client:
            assert "made for body" in version_of(client, model, number).tags["endpoint.lingraft"]


def fingerprint(bundle: Path, language: str) -> str:
    return Artifact.open(bundle, Kind.BUNDLE).manifest.files[f"{language}/table.safetensors"]
