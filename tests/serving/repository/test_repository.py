"""What a server makes of requests to load and unload."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from safetensors.numpy import save as safetensors

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.bundle.language_part import language_fingerprint
from lingraft.errors import RequestError, ServingError
from lingraft.serving.model import ServingContext
from lingraft.serving.repository import Change, Repository
from lingraft.serving.served_bundles import ServedBundles
from lingraft.serving.settings import ServingSettings
from tests.serving.applications import sending
from tests.serving.asking import infer, inputs
from tests.serving.repository.asked import TASK, texts


def answer(served: ServedBundles, language: str) -> bytes:
    bundle = served[TASK]
    golden = bundle.languages[language].self_test
    (logits_BC,) = bundle.body.run(*bundle.gather([(language, ids) for ids in golden.rows])).values()
    return np.asarray(logits_BC).tobytes()


@pytest.fixture
def served(started: Path) -> ServedBundles:
    return ServedBundles.load([started])


@pytest.fixture
def folder(german: Path, turkish: Path, foreign: Path, tmp_path: Path) -> Path:
    for name, bundle in (("german", german), ("turkish", turkish), ("foreign", foreign)):
        shutil.copytree(bundle, tmp_path / "repository" / name)
    return tmp_path / "repository"


@pytest.fixture
def repository(served: ServedBundles, folder: Path) -> Repository:
    return Repository(served, ServingContext(served.bundles, ServingSettings(repository=folder)))


def test_a_language_comes_changes_and_is_as_it_was_started(
    repository: Repository, served: ServedBundles, german: Path, turkish: Path
) -> None:
    before = answer(served, "de")
    repository.load_bundle(TASK, Change(bundle="turkish", language="tr"))
    assert set(served[TASK].languages) == {"en", "de", "tr"}
    assert answer(served, "tr") == answer(ServedBundles.load([turkish]), "tr")
    repository.load_bundle(TASK, Change(bundle="german", language="de"))
    assert answer(served, "de") == answer(ServedBundles.load([german]), "de") != before
    repository.load_bundle(TASK, Change(language="de"))
    assert answer(served, "de") == before
    assert set(served[TASK].languages) == {"en", "de", "tr"}
    repository.load_bundle(TASK, Change())
    assert set(served[TASK].languages) == {"en", "de"}


def test_a_language_is_unloaded_and_the_last_one_stays(repository: Repository, served: ServedBundles) -> None:
    repository.unload_bundle(TASK, Change(language="de"))
    assert set(served[TASK].languages) == {"en"}
    for language in ("en", "xx"):
        with pytest.raises(RequestError, match=rf"'{language}' cannot be taken away"):
            repository.unload_bundle(TASK, Change(language=language))
    assert set(served[TASK].languages) == {"en"}


def test_a_language_of_another_body_is_refused_by_both_fingerprints_and_its_bundle_is_loaded_whole(
    repository: Repository, served: ServedBundles, foreign: Path
) -> None:
    before = answer(served, "de")
    ours, theirs = served[TASK].body_fingerprint, ServedBundles.load([foreign])[TASK].body_fingerprint
    with pytest.raises(RequestError, match=rf"made for body {theirs[:12]} .* has {ours[:12]}"):
        repository.load_bundle(TASK, Change(bundle="foreign", language="de"))
    assert answer(served, "de") == before
    repository.load_bundle(TASK, Change(bundle="foreign"))
    assert answer(served, "de") == answer(ServedBundles.load([foreign]), "de") != before


def test_a_language_of_other_labels_is_refused(repository: Repository, served: ServedBundles, folder: Path) -> None:
    before = answer(served, "de")
    manifest = json.loads((folder / "german/manifest.json").read_bytes())
    manifest["details"]["labels"].reverse()
    (folder / "german/manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(RequestError, match=r"was made for labels \[.* is served with \["):
        repository.load_bundle(TASK, Change(bundle="german", language="de"))
    assert answer(served, "de") == before


NOTHING = safetensors({"tokens_BT": np.zeros((1, 4), np.int64), "visible_BT": np.ones((1, 4), bool)})


@pytest.mark.parametrize("language", ["de", None])
@pytest.mark.parametrize(
    ("name", "content"),
    [("table.safetensors", b"?" * 64), ("golden.safetensors", NOTHING), ("tokenizer.json", b"?" * 64)],
    ids=["table", "golden without answers", "tokenizer"],
)
def test_what_was_written_wrongly_is_refused_and_the_next_one_is_loaded(
    repository: Repository, served: ServedBundles, folder: Path, name: str, content: bytes, language: str | None
) -> None:
    shutil.copytree(folder / "german", folder / "wrong")
    manifest = json.loads((folder / "wrong/manifest.json").read_bytes())
    manifest["files"][f"de/{name}"] = hashlib.sha256(content).hexdigest()
    (folder / "wrong/de" / name).write_bytes(content)
    (folder / "wrong/manifest.json").write_text(json.dumps(manifest))
    before = answer(served, "de")
    with pytest.raises(RequestError, match="What was served is served on"):
        repository.load_bundle(TASK, Change(bundle="wrong", language=language))
    assert answer(served, "de") == before
    repository.load_bundle(TASK, Change(bundle="german", language=language))
    assert answer(served, "de") == answer(ServedBundles.load([folder / "german"]), "de") != before


def test_damage_is_found_where_it_is_read(repository: Repository, served: ServedBundles, folder: Path) -> None:
    (folder / "german/en/table.safetensors").write_bytes(b"damaged")
    repository.load_bundle(TASK, Change(bundle="german", language="de"))
    before = answer(served, "de")
    for language in ("en", None):
        with pytest.raises(RequestError, match=r"en/table\.safetensors"):
            repository.load_bundle(TASK, Change(bundle="german", language=language))
    with pytest.raises(RequestError, match=r"has no language 'xx', only \['de', 'en'\]"):
        repository.load_bundle(TASK, Change(bundle="german", language="xx"))
    assert answer(served, "de") == before


def test_a_folder_that_is_not_there_is_refused(served: ServedBundles, tmp_path: Path) -> None:
    with pytest.raises(ServingError, match=r"--repository .*absent is no folder"):
        Repository(served, ServingContext(served.bundles, ServingSettings(repository=tmp_path / "absent")))


def test_it_is_asked_over_http(started: Path, folder: Path) -> None:
    with sending([started], repository=folder) as send:

        def changed(verb: str, name: str = TASK, **given: Any) -> httpx.Response:
            return send("POST", f"/v2/repository/models/{name}/{verb}", **given)

        def status() -> tuple[str, int, int, int]:
            [state] = send("POST", "/v2/repository/index", json={}).json()
            question = {"json": inputs(["en"], text=texts("en"))}
            known, ready = (send("GET", f"/v2/models/{TASK}{path}").status_code for path in ("", "/ready"))
            return state["state"], known, ready, send("POST", infer(TASK), **question).status_code

        assert status() == ("READY", 200, 200, 200)
        assert changed("load", json={"parameters": {"bundle": "turkish"}}).json() == {"name": TASK, "load": True}
        assert send("GET", f"/v2/models/{TASK}").json()["parameters"]["languages"] == ["de", "en", "tr"]
        # As Triton's client sends it.
        assert changed("unload", json={"parameters": {"unload_dependents": False}}).json() == {
            "name": TASK,
            "unload": True,
        }
        assert status() == ("UNAVAILABLE", 404, 404, 404)
        assert send("GET", "/v2/models").json() == {"models": []}
        assert changed("unload", json={}).status_code == 400
        assert "'topic' is not loaded" in changed("load", json={"parameters": {"language": "de"}}).text
        assert changed("load", json={}).is_success
        assert status() == ("READY", 200, 200, 200)
        for bundle in ("..", "../repository/german", "/etc", "a/b", "", "\0"):
            assert changed("load", json={"parameters": {"bundle": bundle}}).status_code == 400
        assert changed("load", json={"parameters": {"bundle": "absent"}}).status_code == 400
        assert changed("load", json={"parameter": {}}).status_code == 400
        assert changed("load", name="elsewhere", json={}).status_code == 404
    with sending([started]) as send:
        refused = send("POST", f"/v2/repository/models/{TASK}/unload")
        assert (refused.status_code, "Start it with --repository" in refused.text) == (400, True)
        assert send("GET", f"/v2/models/{TASK}/ready").is_success


def test_a_fingerprint_covers_all_that_decides_an_answer_in_its_language_and_nothing_of_others(german: Path) -> None:
    manifest = Artifact.open(german, Kind.BUNDLE).manifest
    details, before = manifest.details, language_fingerprint(manifest, "de")
    shape = details["shape"] | {"block_tokens": details["shape"]["block_tokens"] + 1}
    changed = [
        {"details": details | {"labels": details["labels"][::-1]}},
        {"details": details | {"shape": shape}},
        {"fingerprints": manifest.fingerprints | {"body": "0" * 64}},
        {"files": manifest.files | {"body.onnx": "0" * 64}},
        {"files": manifest.files | {"de/table.safetensors": "0" * 64}},
    ]
    versions = {language_fingerprint(manifest.model_copy(update=each), "de") for each in changed}
    assert len(versions - {before}) == len(changed)
    other = {"files": manifest.files | {"en/table.safetensors": "0" * 64}}
    assert language_fingerprint(manifest.model_copy(update=other), "de") == before
