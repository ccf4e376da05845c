"""What a server makes of a folder of publications, in this process."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import REGISTRY
from safetensors.numpy import save as safetensors

from lingraft.errors import PublicationError
from lingraft.serving.publishing.follower import Follower
from lingraft.serving.publishing.publications import Publications
from lingraft.serving.publishing.publish import publish, require_served, rollback, wait_for_results, withdraw
from lingraft.serving.served_bundles import ServedBundles

TASK = "topic"


def follow(served: ServedBundles, folder: Path) -> Follower:
    return Follower(served, folder, every_s=60)


def answer(served: ServedBundles, language: str) -> bytes:
    bundle = served[TASK]
    golden = bundle.languages[language].self_test
    (logits_BC,) = bundle.body.run(*bundle.gather([(language, ids) for ids in golden.rows])).values()
    return np.asarray(logits_BC).tobytes()


@pytest.fixture
def served(started: Path) -> ServedBundles:
    return ServedBundles.load([started])


def test_a_language_appears_changes_and_is_rolled_back(
    served: ServedBundles, german: Path, turkish: Path, folder: Path
) -> None:
    follower, before = follow(served, folder), answer(served, "de")
    publish(turkish, folder, "a test", ["tr"])
    follower.poll()
    assert set(served[TASK].languages) == {"en", "de", "tr"}
    assert answer(served, "tr") == answer(ServedBundles.load([turkish]), "tr")
    publish(german, folder, "a test", ["de"])
    follower.poll()
    assert answer(served, "de") == answer(ServedBundles.load([german]), "de") != before
    rollback(folder, TASK, "de", "a test")
    rollback(folder, TASK, "tr", "a test")
    follower.poll()
    assert answer(served, "de") == before
    assert set(served[TASK].languages) == {"en", "de"}


def test_what_is_rolled_back_twice_is_what_stood_two_publications_before(
    served: ServedBundles, started: Path, german: Path, turkish: Path, folder: Path
) -> None:
    follower = follow(served, folder)
    for bundle in (turkish, german):
        publish(bundle, folder, "a test", ["de"])
    history = Publications(folder).history(TASK, "de")
    back = [rollback(folder, TASK, "de", "a test") for _ in range(2)]
    assert (back[0].version, back[0].undoes) == (history[0].version, 2)
    assert (back[1].action, back[1].undoes) == ("restore", 1)
    with pytest.raises(PublicationError, match=r"no publication of 'de' .* is left to take back"):
        rollback(folder, TASK, "de", "a test")
    follower.poll()
    assert answer(served, "de") == answer(ServedBundles.load([started]), "de")


def test_a_withdrawn_language_is_gone_and_the_last_one_stays(served: ServedBundles, folder: Path) -> None:
    follower = follow(served, folder)
    follower.poll()
    withdraw(folder, TASK, "de", "a test")
    follower.poll()
    assert set(served[TASK].languages) == {"en"}
    made = withdraw(folder, TASK, "en", "a test")
    follower.poll()
    assert set(served[TASK].languages) == {"en"}
    with pytest.raises(PublicationError, match=r"'en' cannot be taken away"):
        require_served([made], wait_for_results(folder, [made], 0))


def test_another_body_is_refused_by_both_fingerprints_and_the_old_one_stays(
    served: ServedBundles, foreign: Path, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    follower, before = follow(served, folder), answer(served, "de")
    made = publish(foreign, folder, "a test", ["de"])
    follower.poll()
    assert answer(served, "de") == before
    ours, theirs = served[TASK].body_fingerprint, ServedBundles.load([foreign])[TASK].body_fingerprint
    with pytest.raises(PublicationError, match=rf"made for body {theirs[:12]} .* has {ours[:12]}"):
        require_served(made, wait_for_results(folder, made, 0))
    labels = {"task": TASK, "language": "de"}
    assert REGISTRY.get_sample_value("lingraft_publication_refused", labels) == 1
    assert REGISTRY.get_sample_value("lingraft_publications_total", labels | {"outcome": "refused"})


def test_a_language_of_other_labels_is_another_version_and_refused(
    served: ServedBundles, german: Path, folder: Path, tmp_path: Path
) -> None:
    follower, before = follow(served, folder), answer(served, "de")
    shutil.copytree(german, tmp_path / "rotated")
    manifest = json.loads((german / "manifest.json").read_bytes())
    manifest["details"]["labels"].reverse()
    (tmp_path / "rotated" / "manifest.json").write_text(json.dumps(manifest))
    [right], [wrong] = (publish(bundle, folder, "a test", ["de"]) for bundle in (german, tmp_path / "rotated"))
    assert right.version != wrong.version
    follower.poll()
    assert answer(served, "de") != before
    with pytest.raises(PublicationError, match=r"'de' was made for labels \[.* is served with \["):
        require_served([wrong], wait_for_results(folder, [wrong], 0))
    assert answer(served, "de") == answer(ServedBundles.load([german]), "de")


def test_a_server_tells_the_last_refusals_and_does_not_gather_them_for_ever(
    served: ServedBundles, foreign: Path, folder: Path
) -> None:
    follower, publications = follow(served, folder), Publications(folder)
    [first] = publish(foreign, folder, "a test", ["de"])
    for _ in range(20):
        publications.append(TASK, "de", "serve", "a test", first.version)
    follower.poll()
    [(replica, _)] = publications.replicas()
    assert sorted(replica.status(TASK, "de").refused) == [*range(6, 22)]
    assert all("made for body" in reason for reason in replica.status(TASK, "de").refused.values())


NOTHING = safetensors({"tokens_BT": np.zeros((1, 4), np.int64), "visible_BT": np.ones((1, 4), bool)})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("table.safetensors", b"?" * 64),
        ("golden.safetensors", NOTHING),
        ("sentencepiece.model", b"?" * 64),
    ],
    ids=["table", "golden without answers", "tokenizer"],
)
def test_a_version_that_was_written_wrongly_is_a_refusal_and_the_next_one_is_taken_up(
    served: ServedBundles, started: Path, german: Path, folder: Path, tmp_path: Path, name: str, content: bytes
) -> None:
    shutil.copytree(started, tmp_path / "wrong")
    manifest = json.loads((started / "manifest.json").read_bytes())
    manifest["files"][f"de/{name}"] = hashlib.sha256(content).hexdigest()
    (tmp_path / "wrong" / "de" / name).write_bytes(content)
    (tmp_path / "wrong" / "manifest.json").write_text(json.dumps(manifest))
    follower, before = follow(served, folder), answer(served, "de")
    made = publish(tmp_path / "wrong", folder, "a test", ["de"])
    follower.poll()
    assert answer(served, "de") == before
    with pytest.raises(PublicationError, match="1 of 1 answers are refusals"):
        require_served(made, wait_for_results(folder, made, 0))
    publish(german, folder, "a test", ["de"])
    follower.poll()
    assert answer(served, "de") == answer(ServedBundles.load([german]), "de")


def test_a_server_that_is_started_anew_comes_to_what_the_old_one_served(
    served: ServedBundles, started: Path, german: Path, turkish: Path, foreign: Path, folder: Path
) -> None:
    follower = follow(served, folder)
    for bundle, language in ((turkish, "tr"), (german, "de"), (foreign, "de")):
        publish(bundle, folder, "a test", [language])
        follower.poll()
    anew = ServedBundles.load([started])
    follow(anew, folder).poll()
    assert {tag: answer(anew, tag) for tag in anew[TASK].languages} == {
        tag: answer(served, tag) for tag in served[TASK].languages
    }
    assert answer(anew, "de") == answer(ServedBundles.load([german]), "de")


def test_a_folder_that_is_not_there_is_made_but_no_volume_is_made_up(
    served: ServedBundles, german: Path, tmp_path: Path
) -> None:
    follower = follow(served, tmp_path / "new")
    publish(german, tmp_path / "new", "a test", ["de"])
    follower.poll()
    assert answer(served, "de") == answer(ServedBundles.load([german]), "de")
    with pytest.raises(PublicationError, match=r"published is no folder, .* cannot be made: No such file"):
        follow(served, tmp_path / "absent" / "published")
    (tmp_path / "file").write_text("")
    with pytest.raises(PublicationError, match=r"file is no folder, .* cannot be made: File exists"):
        follow(served, tmp_path / "file")
