"""The whole language lane as one call: what it leaves, and how it goes on."""

import contextlib
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoTokenizer

from lingraft import add_language
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.data.text import load_split
from lingraft.model.loading import load_embeddings
from lingraft.new_language.summary import AddedLanguage
from lingraft.stages.evaluate import evaluate_source
from lingraft.tasks.finetuned import load_task
from lingraft.training import run
from lingraft.training.schedule import MetricsCallback
from tests import made_up
from tests.fixtures.forked import lingraft, start
from tests.new_language.given import BRIEFLY, RECIPE, files_of, out_of, plain_text
from tests.workshop import Workshop, copied


def killed_in_the_midst_of_training(arguments: list[str]) -> None:
    @contextlib.contextmanager
    def killed(steps: int, title: str) -> Iterator[MetricsCallback]:
        yield lambda _: os.kill(os.getpid(), signal.SIGKILL)

    run.training_progress = killed
    lingraft(arguments)


def test_the_lane_leaves_what_its_stages_give_one_by_one_and_exports_the_best_seed(
    workshop: Workshop, added: AddedLanguage
) -> None:
    for kind in (Kind.TEXT, Kind.TOKENIZER, Kind.BLOCKS, Kind.EMBEDDINGS, Kind.EVALUATION):
        assert Artifact.load(out_of(added) / kind, kind).manifest.language == "tr"
    one_by_one = Artifact.load(workshop.embeddings["tr"], Kind.EMBEDDINGS)
    assert Artifact.load(added.embeddings, Kind.EMBEDDINGS).fingerprint == one_by_one.fingerprint
    assert added.bundles == {"topic": out_of(added) / "bundle" / "topic"}
    assert added.hf == {name: out_of(added) / "hf" / name for name in ("masked_lm", "topic")}
    best = max(workshop.tasks, key=lambda seed: (load_task(workshop.tasks[seed]).manifest.details["dev_score"], seed))
    bundle = Artifact.load(added.bundles["topic"], Kind.BUNDLE).manifest
    assert bundle.details["languages"] == ["en", "tr"]
    assert bundle.data_hashes["task"] == load_task(workshop.tasks[best]).fingerprint


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
    assert lines[0].split() == ["as", "it", "is", "before", "after"]
    assert masked
    assert task.initial
    assert lines[2].split() == ["masked", "tokens", f"{masked.primary_initial:.1%}", f"{masked.primary:.1%}"]
    assert lines[3].endswith(f"{task.initial.mean:.1%}  {task.score.mean:.1%}")
    assert f"trivial answer {task.baseline:.1%}, 2 seeds" in lines[4]
    assert f"{cost.elapsed_s:.0f} s by {cost.flops:.3g} FLOPs" in lines[5]
    for folder in (*added.hf.values(), *added.bundles.values(), added.embeddings):
        assert str(folder) in added.summary()
    assert f'to load: transformers.AutoModelForMaskedLM.from_pretrained("{added.hf["masked_lm"]}")' in lines
    assert "not " not in added.summary()


def test_called_again_it_makes_nothing_again_and_tells_the_same(
    workshop: Workshop, text: Path, added: AddedLanguage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, moved = copied(out_of(added), tmp_path / "tr"), tmp_path / "elsewhere" / text.name
    moved.parent.mkdir()
    shutil.copy(text, moved)
    before = files_of(out)
    tasks = [*workshop.tasks.values()]
    again = add_language(str(workshop.primary), [moved], "tr", str(out), tasks=tasks, recipe=RECIPE)
    assert repr(again).replace(str(out), str(out_of(added))) == repr(added)
    assert files_of(out) == before
    told = capsys.readouterr().err
    assert told.count("as it was") == 6
    kinds = ("text", "tokenizer", "blocks", "embeddings", "evaluation", "bundle", "checkpoint", "checkpoint")
    headlines = [line for line in told.splitlines() if line.startswith("step ")]
    assert headlines == [f"step {number} of 8: {kind}" for number, kind in enumerate(kinds, start=1)]


def test_a_killed_run_goes_on_where_it_was_and_ends_as_if_it_had_not_been_killed(
    workshop: Workshop, text: Path, tmp_path: Path, added: AddedLanguage
) -> None:
    out = tmp_path / "tr"
    given = ["--primary", workshop.primary, "--text", text, "--lang", "tr", "--recipe", RECIPE, "--out", out]
    command = start(killed_in_the_midst_of_training, ["add-language", *map(str, given)], log=tmp_path / "log")
    assert command.ends() == -signal.SIGKILL, command.said
    assert {path.name for path in out.iterdir() if path.is_dir()} == {"text", "tokenizer", "blocks"}
    before = files_of(out)
    done = add_language(workshop.primary, text, "tr", out, recipe=RECIPE)
    after = files_of(out)
    finished = [name for name in before if not name.endswith(("embeddings.made-from.json", ".lock"))]
    assert {name: after[name] for name in finished} == {name: before[name] for name in finished}
    assert load_embeddings(done.embeddings).fingerprint == load_embeddings(added.embeddings).fingerprint


def test_what_cannot_be_judged_or_bundled_is_said_with_the_reason_and_still_exported(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "onnx_ir", None)
    monkeypatch.delitem(sys.modules, "lingraft.export", raising=False)
    text = plain_text(tmp_path, "de")
    added = add_language(workshop.primary, text, "de", tmp_path / "de", tasks=[workshop.tasks[1]], wanted=BRIEFLY)
    assert (added.scores.tasks, added.bundles) == ((), {})
    assert set(added.hf) == {"masked_lm", "topic"}
    summary = added.summary()
    assert re.search(
        r"^not judged on task 'topic': \d+ of \d+ test documents in 'de' have no label", summary, re.MULTILINE
    )
    assert re.search(r"^not bundled .* 'topic': onnx-ir is not installed.*lingraft\[export\]", summary, re.MULTILINE)
    assert "'topic' will not be judged" in capsys.readouterr().err


def test_several_files_and_folders_are_one_text_that_is_compared_with_the_source(
    workshop: Workshop, tmp_path: Path
) -> None:
    made_up.write(tmp_path / "pages", ("de",), count=150)
    paths = [plain_text(tmp_path, "tr", 150), tmp_path / "pages"]
    judged, source = tmp_path / "en", (workshop.texts["en"], workshop.blocks["en"])
    evaluate_source(workshop.recipe, workshop.primary, [], *source, judged)
    added = add_language(workshop.primary, paths, "de", tmp_path / "de", wanted=BRIEFLY, source_evaluation=judged)
    assert added.scores.alignment
    assert f"counterparts in the source, of {added.scores.alignment.pairs:,}" in added.summary()
    prepared = Artifact.load(out_of(added) / "text", Kind.TEXT)
    assert sum(prepared.manifest.details["documents"].values()) == 300
    assert {document.label is None for document in load_split(prepared, "train")} == {True, False}
