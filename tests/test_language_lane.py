"""The whole language lane as one call: what it leaves, how it goes on, and what it refuses."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoTokenizer

from lingraft import Wanted, add_language, artifact, stages
from lingraft.added_language import AddedLanguage
from lingraft.artifact import Artifact, Kind
from lingraft.errors import (
    AlignmentError,
    ArtifactError,
    DepthError,
    LingraftError,
    MissingExtraError,
    RecipeError,
    TextError,
    TokenizerError,
)
from lingraft.hf_import import import_hf
from lingraft.models import load_embeddings, load_primary, load_task
from lingraft.resumed import MadeDifferentlyError
from lingraft.text import load_split
from tests import made_up, tiny
from tests.hf.checkpoints import make_checkpoint
from tests.workshop import Workshop, copied, same_tensors, unwatched

ROOT = Path(__file__).parents[1]
RECIPE = Path(__file__).with_name("tiny.toml")
BRIEFLY = Wanted(steps=4, batch_blocks=8)

STOPPED_IN_THE_MIDST_OF_TRAINING = """
import os, signal
from lingraft import runs
from lingraft.cli import main

def stopped(points, steps, title):
    next(points)
    os.kill(os.getpid(), signal.SIGKILL)

runs.shown = stopped
main()
"""


@pytest.fixture(scope="module")
def text(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Labelled Turkish text under a name that does not say so."""
    file = tmp_path_factory.mktemp("given") / "pages.jsonl"
    shutil.copy(Path(str(workshop.recipe.text.path)) / "tr.jsonl", file)  # type: ignore[union-attr]
    return file


@pytest.fixture(scope="module")
def added(workshop: Workshop, text: Path, tmp_path_factory: pytest.TempPathFactory) -> AddedLanguage:
    """Turkish, added by the recipe that the workshop was made by."""
    out = tmp_path_factory.mktemp("lane") / "tr"
    return add_language(workshop.primary, text, "tr", out, tasks=[*workshop.tasks.values()], recipe=RECIPE)


def files_of(folder: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of every file."""
    found = {path.relative_to(folder).as_posix(): path.stat() for path in folder.rglob("*") if path.is_file()}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in found.items()}


def out_of(added: AddedLanguage) -> Path:
    return added.embeddings.parent


def plain_text(folder: Path, language: str, count: int = 200) -> Path:
    """Text without labels, one document a paragraph."""
    file = folder / f"{language} text.txt"
    file.write_text("\n\n".join(document["text"] for document in made_up.documents(language, count)))
    return file


def test_the_lane_gives_what_its_stages_give_one_by_one(workshop: Workshop, added: AddedLanguage) -> None:
    one_by_one = Artifact.load(workshop.embeddings["tr"], Kind.EMBEDDINGS)
    assert Artifact.load(added.embeddings, Kind.EMBEDDINGS).fingerprint == one_by_one.fingerprint


def test_every_stage_leaves_an_artifact_or_a_checkpoint(added: AddedLanguage) -> None:
    for kind in (Kind.TEXT, Kind.TOKENIZER, Kind.BLOCKS, Kind.EMBEDDINGS, Kind.EVALUATION):
        assert Artifact.load(out_of(added) / kind, kind).manifest.language == "tr"
    assert added.bundles == {"topic": out_of(added) / "bundle" / "topic"}
    assert Artifact.load(added.bundles["topic"], Kind.BUNDLE).manifest.details["languages"] == ["en", "tr"]
    assert added.hf == {name: out_of(added) / "hf" / name for name in ("masked_lm", "topic")}


def test_all_seeds_are_judged_and_the_best_is_exported(workshop: Workshop, added: AddedLanguage) -> None:
    [scores] = added.scores.tasks
    assert set(scores.score.by_seed) == {1, 2}
    best = max(workshop.tasks, key=lambda seed: (load_task(workshop.tasks[seed]).manifest.details["dev_score"], seed))
    bundle = Artifact.load(added.bundles["topic"], Kind.BUNDLE)
    assert bundle.manifest.data_hashes["task"] == load_task(workshop.tasks[best]).fingerprint


def test_the_checkpoints_compute_what_our_models_compute(workshop: Workshop, added: AddedLanguage) -> None:
    ours, [page, *_] = load_task(workshop.tasks[2]), made_up.documents("tr", 1)
    ours.swap_in(load_embeddings(added.embeddings))
    tokenizer = AutoTokenizer.from_pretrained(added.hf["topic"])
    given = tokenizer(page["text"], return_tensors="pt", truncation=True, max_length=ours.shape.block_tokens)
    theirs = AutoModelForSequenceClassification.from_pretrained(added.hf["topic"]).eval()
    with torch.inference_mode():
        logits_BC = ours.net.eval()(given["input_ids"], given["attention_mask"].bool())
        assert torch.allclose(theirs(**given).logits, logits_BC, atol=1e-5)
    assert [*theirs.config.id2label.values()] == ours.labels
    assert AutoModelForMaskedLM.from_pretrained(added.hf["masked_lm"]).config.vocab_size == len(tokenizer)
    assert added.loaders == {"masked_lm": "AutoModelForMaskedLM", "topic": "AutoModelForSequenceClassification"}


def test_the_summary_says_scores_before_and_after_the_cost_and_where_everything_is(added: AddedLanguage) -> None:
    lines, [task] = added.summary().splitlines(), added.scores.tasks
    masked, cost = added.scores.masked, added.scores.cost
    assert f"{masked.primary_initial:.1%} -> {masked.primary:.1%}" in lines[0]
    assert task.initial is not None
    assert f"{task.initial.mean:.1%} -> {task.score.mean:.1%} (trivial answer {task.baseline:.1%}, 2 seeds" in lines[1]
    assert f"{cost.elapsed_s:.0f} s by {cost.flops:.3g} FLOPs" in lines[2]
    for folder in (*added.hf.values(), *added.bundles.values(), added.embeddings):
        assert str(folder) in added.summary()
    assert "not " not in added.summary()


def test_called_again_it_makes_nothing_again_and_tells_the_same(
    workshop: Workshop, text: Path, added: AddedLanguage, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files_of(out_of(added))
    moved = text.rename(text.with_name("elsewhere.jsonl")).rename(text)
    tasks = [*workshop.tasks.values()]
    again = add_language(str(workshop.primary), [moved], "tr", str(out_of(added)), tasks=tasks, recipe=RECIPE)
    assert again == added
    assert files_of(out_of(added)) == before
    assert capsys.readouterr().err.count("as it was") == 6


def test_a_killed_run_goes_on_where_it_was_and_ends_as_if_it_had_not_been_killed(
    workshop: Workshop, text: Path, tmp_path: Path, added: AddedLanguage
) -> None:
    out = tmp_path / "tr"
    given = ["--primary", workshop.primary, "--text", text, "--lang", "tr", "--recipe", RECIPE, "--out", out]
    command = [sys.executable, "-c", STOPPED_IN_THE_MIDST_OF_TRAINING, "add-language", *map(str, given)]
    assert subprocess.run(command, check=False, capture_output=True).returncode == -9
    assert {path.name for path in out.iterdir() if path.is_dir()} == {"text", "tokenizer", "blocks"}
    before = files_of(out)
    done = add_language(workshop.primary, text, "tr", out, recipe=RECIPE)
    after = files_of(out)
    finished = [name for name in before if name != "embeddings.made-from.json"]
    assert {name: after[name] for name in finished} == {name: before[name] for name in finished}
    assert load_embeddings(done.embeddings).fingerprint == load_embeddings(added.embeddings).fingerprint


@pytest.mark.parametrize(
    ("wanted", "stage", "words"),
    [
        (Wanted(learning_rate=0.5), "embeddings", "adaptation.learning_rate was 0.003, is 0.5"),
        (Wanted(vocabulary=99), "tokenizer", "settings.vocabulary was 120, is 99"),
    ],
)
def test_other_settings_do_not_mix_with_what_is_there(
    workshop: Workshop, text: Path, added: AddedLanguage, wanted: Wanted, stage: str, words: str
) -> None:
    before = files_of(out_of(added))
    with pytest.raises(MadeDifferentlyError, match=rf"{stage} was made from something else: {re.escape(words)}"):
        add_language(workshop.primary, text, "tr", out_of(added), recipe=RECIPE, wanted=wanted)
    assert files_of(out_of(added)) == before


def test_other_text_does_not_mix_with_what_is_there(
    workshop: Workshop, text: Path, added: AddedLanguage, tmp_path: Path
) -> None:
    longer = tmp_path / text.name
    longer.write_text(text.read_text() + json.dumps({"text": "yeni"}) + "\n")
    with pytest.raises(MadeDifferentlyError, match=r"text was made from something else: files.1-1 pages.jsonl was"):
        add_language(workshop.primary, longer, "tr", out_of(added), recipe=RECIPE)


def test_what_cannot_be_judged_or_bundled_is_said_with_the_reason_and_still_exported(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    monkeypatch.delitem(sys.modules, "lingraft.export", raising=False)
    text = plain_text(tmp_path, "de")
    added = add_language(workshop.primary, text, "de", tmp_path / "de", tasks=[workshop.tasks[1]], wanted=BRIEFLY)
    assert (added.scores.tasks, added.bundles) == ((), {})
    assert set(added.hf) == {"masked_lm", "topic"}
    summary = added.summary()
    assert re.search(r"^not judged on task 'topic': .*no label", summary, re.MULTILINE)
    assert re.search(r"^not bundled .* 'topic': onnxscript is not installed.*lingraft\[export\]", summary, re.MULTILINE)
    assert "'topic' will not be judged" in capsys.readouterr().err


def test_several_files_and_folders_are_one_text(workshop: Workshop, tmp_path: Path) -> None:
    made_up.write(tmp_path / "pages", ("de",), count=150)
    paths = [plain_text(tmp_path, "tr", 150), tmp_path / "pages"]
    added = add_language(workshop.primary, paths, "de", tmp_path / "de", wanted=BRIEFLY)
    prepared = Artifact.load(out_of(added) / "text", Kind.TEXT)
    assert sum(prepared.manifest.details["documents"].values()) == 300
    assert {document.label is None for document in load_split(prepared, "train")} == {True, False}


def one_head(workshop: Workshop, folder: Path) -> Path:
    """A primary with one head, at the top, as an imported one has."""
    shape = workshop.recipe.encoder.model_copy(update={"mlm_heads": (3,)})
    recipe = workshop.recipe.model_copy(update={"encoder": shape})
    return tiny.write_primary(recipe, workshop.tokenizers["en"], folder / "primary", seed=1)


def mini_of(workshop: Workshop, primary: Path, out: Path) -> Path:
    """MINIPOST's mini-model of a primary with one head: 1 layer of its, and 2 fresh ones."""
    training = workshop.recipe.pretraining.model_dump() | {"steps": 2, "warmup_steps": 0}
    raw = workshop.recipe.model_dump(mode="json") | {"system": "MINIPOST", "search": None, "mini": training}
    stages.build_mini(workshop.recipe.parse(raw), primary, workshop.blocks["en"], out, unwatched)
    return out


def test_a_primary_with_one_head_is_adapted_over_all_its_layers(
    workshop: Workshop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    primary = one_head(workshop, tmp_path)
    added = add_language(primary, plain_text(tmp_path, "de"), "de", tmp_path / "de", wanted=BRIEFLY)
    assert (added.scores.system, added.scores.depth, added.scores.standard) == ("BL_BASE", 3, True)
    assert "3 of the primary's 3 layers: standard adaptation" in capsys.readouterr().err


@pytest.mark.parametrize("model_type", ["bert", "xlm-roberta"])
def test_an_imported_primary_learns_a_language_with_a_tokenizer_of_our_own(model_type: str, tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "checkpoint", model_type)
    import_hf(str(tmp_path / "checkpoint"), tmp_path / "primary", "en")
    added = add_language(tmp_path / "primary", plain_text(tmp_path, "de"), "de", tmp_path / "de", wanted=BRIEFLY)
    model = AutoModelForMaskedLM.from_pretrained(added.hf["masked_lm"])
    assert (model.config.model_type, model.config.vocab_size) == (model_type, added.scores.vocabulary)
    assert load_embeddings(added.embeddings).tokenizer.model.name == "sentencepiece.model"


def test_with_a_mini_model_the_embeddings_are_learned_over_it(workshop: Workshop, tmp_path: Path) -> None:
    primary = one_head(workshop, tmp_path)
    mini, text = mini_of(workshop, primary, tmp_path / "mini"), plain_text(tmp_path, "de")
    added = add_language(primary, text, "de", tmp_path / "de", mini=mini, wanted=BRIEFLY)
    scores = added.scores
    assert (scores.system, scores.depth, scores.fresh_layers, scores.standard) == ("MINIPOST", 1, 2, False)
    with pytest.raises(DepthError, match="depth 2 was asked for, but the mini-model is of depth 1"):
        add_language(primary, text, "de", tmp_path / "other", mini=mini, wanted=Wanted(depth=2))
    with pytest.raises(AlignmentError, match="the mini-model of depth 1 is aligned with primary"):
        add_language(workshop.primary, text, "de", tmp_path / "other", mini=mini)


def test_a_vocabulary_that_nobody_asked_for_is_lowered_to_what_the_text_supports(
    workshop: Workshop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["kalem", "defter", "masa", "kapı", "pencere", "yol"]
    lines = [" ".join([words[number % 6], words[number % 5]] * 4) for number in range(120)]
    (tmp_path / "few.txt").write_text("\n".join(f"{line} {number % 7}" for number, line in enumerate(lines)))
    added = add_language(workshop.primary, tmp_path / "few.txt", "tr", tmp_path / "tr", wanted=BRIEFLY)
    supported = added.scores.vocabulary
    assert supported < workshop.recipe.tokenizer.vocabulary
    assert f"the text supports {supported} pieces at most" in capsys.readouterr().err
    wanted = Wanted(vocabulary=5000)
    with pytest.raises(TokenizerError, match=f"a vocabulary of 5000 pieces .* supports {supported} at most"):
        add_language(workshop.primary, tmp_path / "few.txt", "tr", tmp_path / "more", wanted=wanted)


def test_without_transformers_nothing_is_begun(
    workshop: Workshop, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"lingraft\[huggingface\]"):
        add_language(workshop.primary, text, "tr", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"language": "en"}, RecipeError, "'en' is the primary's own language"),
        ({"language": "Turkish"}, RecipeError, "targets.0: must be a BCP 47 tag"),
        ({"text": "absent.txt"}, TextError, "no file or folder absent.txt"),
        ({"text": []}, RecipeError, r"paths of 'tr', \[\], must be one or more"),
        ({"tasks": ["primary"]}, ArtifactError, "kind primary, but one of kind task"),
        ({"mini": "primary"}, ArtifactError, "kind primary, but one of kind mini"),
        ({"tasks": ["task/1", "task/1"]}, ArtifactError, r"with seeds \[1, 1\]. Give each seed once"),
        ({"wanted": Wanted(depth=0)}, DepthError, r"depth 0 .* heads at \[1, 2, 3\]"),
        ({"wanted": Wanted(depth=4)}, DepthError, r"depth 4 .* of 3 layers has MLM heads at \[1, 2, 3\]"),
        ({"wanted": Wanted(steps=0)}, RecipeError, r"adaptation.steps: .* greater than 0"),
        ({"wanted": Wanted(learning_rate=-1.0)}, RecipeError, "adaptation.learning_rate: .*given: -1.0"),
        ({"wanted": Wanted(batch_blocks=0)}, RecipeError, "adaptation.batch_blocks"),
        ({"wanted": Wanted(vocabulary=5)}, RecipeError, "tokenizer.vocabulary"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said_before_anything_is_made(
    workshop: Workshop, text: Path, tmp_path: Path, given: dict[str, Any], error: type[LingraftError], words: str
) -> None:
    root = workshop.primary.parent
    given = {"primary": root / "primary", "text": text, "language": "tr", "out": tmp_path / "out"} | given
    if "tasks" in given:
        given["tasks"] = [root / task for task in given["tasks"]]
    if "mini" in given:
        given["mini"] = root / given["mini"]
    with pytest.raises(error, match=words):
        add_language(**given)
    assert not (tmp_path / "out").exists()


def test_a_task_of_another_primary_is_refused(workshop: Workshop, text: Path, tmp_path: Path) -> None:
    other = workshop.other_primary(tmp_path / "other")
    with pytest.raises(AlignmentError, match=r"task 'topic' in .* is aligned with primary"):
        add_language(other, text, "tr", tmp_path / "out", tasks=[workshop.tasks[1]])


def test_labels_that_the_task_does_not_know_are_refused_before_the_training(workshop: Workshop, tmp_path: Path) -> None:
    rows = [document | {"label": "moon"} for document in made_up.documents("tr", 200)]
    (tmp_path / "moon.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(TextError, match="moon"):
        add_language(
            workshop.primary, tmp_path / "moon.jsonl", "tr", tmp_path / "out", tasks=[workshop.tasks[1]], wanted=BRIEFLY
        )
    assert not (tmp_path / "out/embeddings").exists()


def test_a_damaged_stage_is_refused_and_named(
    workshop: Workshop, text: Path, added: AddedLanguage, tmp_path: Path
) -> None:
    out = copied(out_of(added), tmp_path / "tr")
    (out / "embeddings" / "history.jsonl").write_text("")
    with pytest.raises(ArtifactError, match=r"history.jsonl was truncated or edited"):
        add_language(workshop.primary, text, "tr", out, recipe=RECIPE)


def test_the_readmes_python_adds_a_language_and_asks_the_model(
    workshop: Workshop, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [code] = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(code.splitlines()) <= 12
    (tmp_path / "work").mkdir()
    shutil.copytree(workshop.primary, tmp_path / "work/primary")
    shutil.copytree(workshop.tasks[1], tmp_path / "work/task")
    (tmp_path / "text").mkdir()
    shutil.copy(text, tmp_path / "text/tr.jsonl")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "topic: accuracy without any training example" in printed
    assert printed.split()[-1] in made_up.TOPICS


def test_the_body_that_is_exported_is_the_primarys(workshop: Workshop, added: AddedLanguage) -> None:
    ours = load_primary(workshop.primary)
    ours.swap_in(load_embeddings(added.embeddings))
    theirs = AutoModelForMaskedLM.from_pretrained(added.hf["masked_lm"])
    table_VD = theirs.get_input_embeddings().weight
    assert same_tensors({"table": table_VD.detach()}, {"table": ours.encoder.vocabulary.table_VD.detach()})
    assert artifact.read_manifest(added.embeddings).aligned_with == ours.fingerprint
