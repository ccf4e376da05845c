"""An embedding model as on the hub, and a language that it learns: the whole way, from Python and by the command."""

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from lingraft import Primary, Wanted
from lingraft.api import Language
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import MANIFEST, Kind, artifact_fingerprint
from lingraft.data.language_detection import LanguageDetector
from lingraft.data.parallel_text import Pair, read_pairs
from lingraft.errors import ExportError, RecipeError
from lingraft.export import export_bundle
from lingraft.huggingface.export import export_hf
from lingraft.model.loading import load_embeddings, load_primary
from lingraft.serving.bundle import Bundle
from lingraft.serving.served_models import served_models
from lingraft.stages import sentence_pairs
from lingraft.stages.results import SOURCE_TOKENIZER
from tests import made_up
from tests.huggingface.embedding_models import make_embedding_model
from tests.new_language.given import out_of, plain_text

README = Path(__file__).parents[2] / "README.md"
WANTED = Wanted(steps=30, learning_rate=3e-2, vocabulary=150)


class Given:
    """An embedding model, and text, sentence pairs and a dictionary of German."""

    def __init__(self, folder: Path) -> None:
        prompts = {"query": "ba ", "document": "ki lo "}
        make_embedding_model(folder / "embedding", pooling="cls", prompts=prompts)
        self.model = folder / "embedding" / "model"
        self.text = plain_text(folder, "de")
        sides = (
            [line for page in made_up.documents(tag, 120) for line in page["text"].split("\n")] for tag in ("en", "de")
        )
        lines = [*zip(*sides, strict=True)]
        self.pairs = folder / "en-de.tsv"
        self.pairs.write_text("".join(f"{source}\t{target}\n" for source, target in lines), encoding="utf-8")
        words = {(s, t) for source, target in lines for s, t in zip(source.split(), target.split(), strict=True)}
        self.dictionary = folder / "en-de.txt"
        self.dictionary.write_text("".join(f"{s} {t}\n" for s, t in sorted(words)), encoding="utf-8")


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Given:
    return Given(tmp_path_factory.mktemp("given"))


@pytest.fixture(scope="module")
def german(given: Given, tmp_path_factory: pytest.TempPathFactory) -> Language:
    out = tmp_path_factory.mktemp("learned") / "de"
    primary = Primary.from_pretrained(given.model)
    return primary.learn_language(given.text, "de", out, pairs=given.pairs, wanted=WANTED)


def test_by_pairs_translations_approach_the_models_vectors_and_the_model_stays(given: Given, german: Language) -> None:
    [scores] = german.added.scores.tasks
    assert scores.initial
    first, *_, last = german.added.scores.history
    assert last.loss < first.loss
    assert {"accuracy_at_10"} <= scores.initial_others.keys() & scores.baseline_others[SOURCE_TOKENIZER].keys()
    assert german.added.scores.masked is None
    assert german.added.scores.learned_over == german.added.scores.layers > german.added.scores.depth
    before = load_primary(german.primary.folder).encoder.state_dict()
    again = load_primary(Primary.from_pretrained(given.model).folder).encoder.state_dict()
    assert all(torch.equal(before[name], again[name]) for name in before)


def test_what_is_exported_and_served_is_what_was_learned(given: Given, german: Language) -> None:
    """Vectors of the exported model beside the unchanged one's are the cosines that the library computes."""
    texts = [page["text"].split("\n")[0] for page in made_up.documents("de", 3)]
    sources = [page["text"].split("\n")[0] for page in made_up.documents("en", 3)]
    index = SentenceTransformer(str(given.model), device="cpu").encode_document(
        sources, convert_to_tensor=True, normalize_embeddings=True
    )
    asked = german.to_sentence_transformer().encode_query(texts, convert_to_tensor=True, normalize_embeddings=True)
    torch.testing.assert_close(asked @ index.T, german.similarity(texts, sources), rtol=0, atol=1e-5)
    bundle = Bundle.load(german.added.bundles["retrieval"])
    assert [*bundle.languages] == ["en", "de"]
    bundle.run_self_test()


def test_without_a_task_an_embedding_model_is_exported_as_what_it_is(
    given: Given, german: Language, tmp_path: Path
) -> None:
    primary, learned = german.primary.folder, german.added.embeddings
    bundle = Artifact.load(german.added.bundles["retrieval"], Kind.BUNDLE)
    made = export_bundle(primary, None, [learned], tmp_path / "bundle")
    assert made.manifest.fingerprints == bundle.manifest.fingerprints
    assert [*served_models({"": Bundle.load(made.folder)})] == ["embeddings"]
    with pytest.raises(ExportError, match=r"judged on examples of a task\. Give --task"):
        export_bundle(primary, None, [learned], tmp_path / "judged", examples={"de": [1]})
    export_hf(primary, tmp_path / "hf")
    text = made_up.documents("en", 1)[0]["text"]
    again, before = (SentenceTransformer(str(folder), device="cpu") for folder in (tmp_path / "hf", given.model))
    assert abs(again.encode_query(text) - before.encode_query(text)).max() < 1e-5


def test_the_embedding_task_is_known_by_its_kind(german: Language, tmp_path: Path) -> None:
    task = Path(shutil.copytree(german.primary.tasks[0], tmp_path / "task"))
    manifest = json.loads((task / MANIFEST).read_text(encoding="utf-8"))
    manifest["details"]["settings"]["name"] = "search"
    (task / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    added = replace(german.added, hf={"search": german.added.hf["retrieval"]})
    named = Language(Primary(german.primary.folder, (task,)), added)
    assert torch.equal(named.similarity(["fo gy"], ["ba de"]), german.similarity(["fo gy"], ["ba de"]))
    assert named.to_sentence_transformer().encode(["fo gy"]).shape == (1, 32)
    with pytest.raises(RecipeError, match=r"is no embedding model\. Load one of"):
        Language(Primary(german.primary.folder, ()), added).to_sentence_transformer()


def test_the_summary_has_scores_as_it_is_before_and_after_and_seconds(german: Language) -> None:
    lines = german.added.summary().splitlines()
    assert lines[0].split() == ["as", "it", "is", "before", "after"]
    assert [len(line.split("  ")[-1]) > 0 for line in lines if line.startswith("retrieval: accuracy at")] == [True] * 2
    assert lines[-1].startswith("stages: text ")


@pytest.mark.parametrize("resource", ["dictionary", "text alone"])
def test_without_pairs_rows_stay_as_they_begin(
    given: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resource: str
) -> None:
    monkeypatch.setattr(LanguageDetector, "detect_other", lambda *_, **__: "")  # made-up words are of no language
    monkeypatch.setattr(LanguageDetector, "log_odds", lambda *_: 0.0)
    primary = Primary.from_pretrained(given.model)
    found = {"dictionary": given.dictionary, "wanted": Wanted(vocabulary=150)} if resource == "dictionary" else {}
    added = primary.learn_language(given.text, "de", tmp_path / "de", **found).added
    learned, initial = (load_embeddings(out_of(added) / name) for name in ("embeddings", "initial"))
    assert torch.equal(learned.vocabulary.table_VD, initial.vocabulary.table_VD)
    assert added.scores.cost.steps == 0
    assert added.summary().startswith("nothing was learned: there were no sentence pairs. Give --pairs")
    assert "judged on task 'retrieval'" in added.left_out
    texts = [page["text"].split("\n")[0] for page in made_up.documents("de", 5)]
    as_it_is = SentenceTransformer(str(given.model), device="cpu").encode_query(texts)
    own = SentenceTransformer(str(added.hf["retrieval"]), device="cpu").encode_query(texts)
    assert (abs(own - as_it_is).max() < 1e-5) == (resource == "text alone")
    assert Artifact.load(added.embeddings, Kind.EMBEDDINGS).manifest.aligned_with == artifact_fingerprint(
        primary.folder
    )


@pytest.mark.parametrize("resource", ["pairs", "source text"])
def test_a_text_of_a_few_lines_is_enough(
    given: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resource: str
) -> None:
    """It is shorter than an input, and no document of it is held out; pairs that are learned by are read once."""
    read: list[object] = []

    def counting(*asked: Any) -> Iterator[Pair]:
        read.append(asked)
        return read_pairs(*asked)

    monkeypatch.setattr(sentence_pairs, "read_pairs", counting)
    text, pairs = plain_text(tmp_path, "de", 2), Path(shutil.copy(given.pairs, tmp_path))
    found: dict[str, Path] = {"pairs": pairs} if resource == "pairs" else {"source_text": given.text}
    german = Primary.from_pretrained(given.model).learn_language(
        text, "de", tmp_path / "de", wanted=Wanted(steps=2), **found
    )
    documents = Artifact.load(out_of(german.added) / "text", Kind.TEXT).manifest.detail("documents", dict[str, int])
    assert documents == {"train": 2, "dev": 0, "test": 0}
    assert len(read) == ("pairs" in found)
    assert german.similarity(["ein Satz"], ["a sentence"]).isfinite().all()


@pytest.mark.integration
def test_the_readmes_python_teaches_a_real_model_a_language(
    given: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [code] = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(code.splitlines()) <= 8
    shutil.copy(plain_text(tmp_path, "de", 3000), tmp_path / "de.txt")
    shutil.copy(given.pairs, tmp_path / "en-de.tsv")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    assert "retrieval: accuracy at 1" in capsys.readouterr().out
    assert (tmp_path / "work" / "german-model" / "modules.json").is_file()
