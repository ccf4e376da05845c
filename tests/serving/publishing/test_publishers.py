"""Publishers that are killed, that meet, and that nobody answers."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.bundle.format import body_fingerprint
from lingraft.bundle.language_part import language_version
from lingraft.cli import app
from lingraft.errors import PublicationError, SupersededError
from lingraft.serving.publishing.publications import LanguageStatus, Publications, ReplicaStatus
from lingraft.serving.publishing.publish import (
    publish,
    require_served,
    rollback,
    silent_replicas,
    wait_for_results,
    withdraw,
)

TASK = "topic"
KILLED = """
import os, signal, sys
from pathlib import Path
import lingraft.{module} as module
from lingraft.serving.publishing.publish import publish

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

module.write_json = die
publish(Path(sys.argv[1]), Path(sys.argv[2]), "a test", ["de"])
"""


def killed(module: str, bundle: Path, folder: Path) -> None:
    """Have a publisher killed when all of something is copied but its last file, which makes it whole."""
    program = KILLED.format(module=module)
    ended = subprocess.run([sys.executable, "-c", program, bundle, folder], capture_output=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr


@pytest.mark.parametrize(
    "module", ["artifacts.artifact", "serving.publishing.publications"], ids=["while copying", "while deciding"]
)
def test_a_publisher_that_is_killed_leaves_nothing_to_be_served(german: Path, folder: Path, module: str) -> None:
    killed(module, german, folder)
    publications = Publications(folder)
    assert publications.latest_number(TASK, "de") == 0
    assert any(path.name.startswith(".") for path in folder.rglob("*"))
    version = language_version(Artifact.open(german, Kind.BUNDLE).manifest, "de")
    assert publications.version_path(TASK, "de", version).exists() == (module == "serving.publishing.publications")
    [made] = publish(german, folder, "a test", ["de"])
    assert (made.number, made.version) == (1, version)
    Artifact.load(publications.version_path(TASK, "de", version), Kind.LANGUAGE)


def test_of_publishers_at_once_each_number_is_one_s(folder: Path) -> None:
    publications, start = Publications(folder), threading.Barrier(4)
    made: list[int] = []
    lost: list[SupersededError] = []

    def decide() -> None:
        start.wait()
        for _ in range(10):
            try:
                made.append(publications.append(TASK, "de", "withdraw", "a test").number)
            except SupersededError as error:
                lost.append(error)

    threads = [threading.Thread(target=decide) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == list(range(1, len(made) + 1))
    assert len(made) + len(lost) == 40
    assert [each.number for each in publications.history(TASK, "de")] == sorted(made)


def test_a_part_is_what_its_bundle_says_and_needs_no_second_copy(german: Path, folder: Path) -> None:
    [made] = publish(german, folder, "a test", ["de"])
    part = Artifact.load(Publications(folder).version_path(TASK, "de", str(made.version)), Kind.LANGUAGE)
    whole = Artifact.load(german, Kind.BUNDLE)
    assert {name: whole.manifest.files[name] for name in part.manifest.files} == part.manifest.files
    assert part.manifest.details["bodies"] == {"fp32": body_fingerprint(whole.manifest, "fp32")}
    assert part.manifest.aligned_with == whole.manifest.aligned_with
    assert (part.folder / "de/table.safetensors").samefile(german / "de/table.safetensors")


@pytest.mark.parametrize(("task", "language"), [("../up", "de"), ("topic", "../de"), ("topic", "DE"), ("", "de")])
def test_names_that_are_none_are_refused(folder: Path, task: str, language: str) -> None:
    with pytest.raises(PublicationError, match="cannot be published"):
        Publications(folder).append(task, language, "withdraw", "a test")
    assert [*folder.iterdir()] == []


def test_only_files_of_what_is_published_are_read(german: Path, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(german, tmp_path / "copy")
    (tmp_path / "copy/en/table.safetensors").write_bytes(b"damaged")
    assert [each.language for each in publish(tmp_path / "copy", folder, "a test", ["de"])] == ["de"]


def test_nobody_who_answers_is_said(german: Path, folder: Path) -> None:
    made = publish(german, folder, "a test", ["de"])
    with pytest.raises(PublicationError, match="no server has answered"):
        require_served(made, wait_for_results(folder, made, 0.2))
    ended = CliRunner().invoke(app, ["publish", "withdraw", TASK, "de", f"--to={folder}", "--wait=0"])
    assert (ended.exit_code, f"{TASK} de 2: withdraw" in ended.stdout) == (0, True)


def test_a_folder_in_which_nothing_was_published_is_said_to_be_empty(folder: Path) -> None:
    def listed() -> str:
        return CliRunner().invoke(app, ["publish", "ls", f"--to={folder}"], catch_exceptions=False).stdout

    assert listed() == f"nothing has been published in {folder}, and no server has followed it\n"
    Publications(folder).write_status(ReplicaStatus(name="one"))
    assert listed() == f"nothing has been published in {folder}; servers that follow it: one\n"


def test_what_is_not_there_cannot_be_withdrawn_and_what_is_there_is_said(german: Path, folder: Path) -> None:
    publications = Publications(folder)
    with pytest.raises(PublicationError, match=r"'tr' of 'topic' is not served.* has nothing. No server has answered"):
        withdraw(folder, TASK, "tr", "a test")
    publish(german, folder, "a test", ["de"])
    publications.write_status(
        ReplicaStatus(name="a", replies={TASK: {"en": LanguageStatus(version="0" * 16), "tr": LanguageStatus()}})
    )
    for language in ("tr", "xx"):
        with pytest.raises(PublicationError, match=rf"'{language}' of 'topic' is not served.* has topic: 'de', 'en'\."):
            withdraw(folder, TASK, language, "a test")
    withdraw(folder, TASK, "en", "a test")  # which servers were started with
    with pytest.raises(PublicationError, match=r"'en' of 'topic' is not served.* has topic: 'de'\."):
        withdraw(folder, TASK, "en", "a test")
    assert publications.latest_number(TASK, "en") == 1


def test_the_first_publication_of_a_new_language_is_of_that_language_alone(
    started: Path, turkish: Path, folder: Path
) -> None:
    """Of what servers were started with nothing is published again, unless it is asked for by name."""
    manifest = Artifact.open(started, Kind.BUNDLE).manifest
    known = {language: LanguageStatus(version=language_version(manifest, language)) for language in ("en", "de")}
    for name in ("a", "b"):
        Publications(folder).write_status(ReplicaStatus(name=name, replies={TASK: known}))
    assert [each.language for each in publish(turkish, folder, "a test")] == ["tr"]
    Publications(folder).write_status(
        ReplicaStatus(name="b", replies={TASK: known | {"de": LanguageStatus(version="0" * 16)}})
    )
    assert [each.language for each in publish(turkish, folder, "a test")] == ["de"]
    assert [each.language for each in publish(turkish, folder, "a test", ["en"])] == ["en"]


def test_a_server_that_died_is_waited_for_and_named_but_does_not_decide(folder: Path) -> None:
    publications = Publications(folder)
    publications.write_status(ReplicaStatus(name="dead"))
    os.utime(folder / "answers/dead.json", (1, 1))
    made = [publications.append(TASK, "de", "withdraw", "a test")]
    alive = ReplicaStatus(name="alive", replies={TASK: {"de": LanguageStatus(seen=1, number=1)}})
    publications.write_status(alive)
    found = wait_for_results(folder, made, 0.2)
    require_served(made, found)
    assert ([each.replica for each in found], silent_replicas(folder, made, found)) == (["alive"], ["dead"])


def test_old_versions_go_but_not_what_a_rollback_or_a_server_needs(started: Path, german: Path, folder: Path) -> None:
    publications = Publications(folder)
    for bundle in (started, german, started):
        publish(bundle, folder, "a test", ["de"])
    assert publications.prune(TASK, "de", keep=2) == []
    assert publications.prune(TASK, "de", keep=1) == [publications.read(TASK, "de", 2).version]
    publish(german, folder, "a test", ["de"])
    serving = LanguageStatus(version=publications.read(TASK, "de", 3).version)
    publications.write_status(ReplicaStatus(name="a", replies={TASK: {"de": serving}}))
    assert publications.prune(TASK, "de", keep=1) == []
    rollback(folder, TASK, "de", "a test")


def test_a_version_covers_all_that_decides_an_answer_in_its_language_and_nothing_of_others(german: Path) -> None:
    manifest = Artifact.open(german, Kind.BUNDLE).manifest
    details, before = manifest.details, language_version(manifest, "de")
    shape = details["shape"] | {"block_tokens": details["shape"]["block_tokens"] + 1}
    changed = [
        {"details": details | {"labels": details["labels"][::-1]}},
        {"details": details | {"shape": shape}},
        {"fingerprints": manifest.fingerprints | {"body": "0" * 64}},
        {"files": manifest.files | {"body.onnx": "0" * 64}},
        {"files": manifest.files | {"de/table.safetensors": "0" * 64}},
    ]
    versions = {language_version(manifest.model_copy(update=each), "de") for each in changed}
    assert len(versions - {before}) == len(changed)
    other = {"files": manifest.files | {"en/table.safetensors": "0" * 64}}
    assert language_version(manifest.model_copy(update=other), "de") == before
