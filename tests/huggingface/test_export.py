"""What is exported loads with transformers' own classes, and computes what our own model computes."""

import itertools
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoTokenizer

from lingraft.config.encoder import EncoderShape, Family, PreNorm
from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import AlignmentError, ExportError, MissingExtraError
from lingraft.huggingface import export as hf_export
from lingraft.huggingface.export import export_hf
from lingraft.huggingface.importing import import_hf
from lingraft.model.encoder import Encoder
from lingraft.model.loading import Embeddings, load_embeddings, load_primary
from lingraft.tasks.finetuned import load_task
from lingraft.tasks.pairs import Encoded, encode, pad, pad_types
from tests.huggingface.checkpoints import LINES, MODEL_TYPES, Made, logits_of, make_checkpoint
from tests.huggingface.models import LABELS, LANGUAGE, write_language, write_own_primary, write_task_of
from tests.huggingface.scripts import lines_of, trained

CLOSE = 1e-5
OWN, OWN_MODERN, MODERNBERT, MMBERT = "own", "own modern", "modernbert", "mmbert"
SHAPE = EncoderShape(width=32, layers=3, attention_heads=4, mlm_heads=(2, 3), block_tokens=40, feedforward=48)
SHORT_SIGHTED = PreNorm(global_every=2, local_tokens=8)
MODERN = SHAPE.model_copy(update={"family": Family(position_offset=0, separators=1, pre_norm=SHORT_SIGHTED)})
OWN_SHAPES = {OWN: SHAPE, OWN_MODERN: MODERN}
FAMILIES = (*OWN_SHAPES, *MODEL_TYPES, MODERNBERT, MMBERT)
MODERN_BIASES = dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), True)
CLASSES = {
    "masked": transformers.AutoModelForMaskedLM,
    "texts": transformers.AutoModelForSequenceClassification,
    "pairs": transformers.AutoModelForSequenceClassification,
    "questions": transformers.AutoModelForQuestionAnswering,
    "tags": transformers.AutoModelForTokenClassification,
}
WHERE = ("source", "target")
DIFFERENT = {
    (OWN, "masked", "source"),
    *itertools.product((OWN, "bert"), ("masked", "pairs", "questions", "tags"), ("target",)),
    ("roberta", "masked", "source"),
    ("roberta", "tags", "target"),
    ("xlm-roberta", "questions", "source"),
    ("camembert", "masked", "target"),
    *itertools.product((OWN_MODERN,), ("masked", "pairs"), ("target",)),
    *itertools.product((MODERNBERT,), ("masked", "pairs", "questions", "tags"), ("source",)),
    (MODERNBERT, "masked", "target"),
    (MMBERT, "masked", "source"),
}
"""Family, kind and place of a text in which an export can fail by itself: heads are named by family and by kind."""
TEXTS = [("the harbour was quiet",), ("a garden", "of herbs and bread"), (LINES[3],), ("Hafen " * 60, "still"), ("a",)]


@pytest.fixture(scope="session")
def own(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    """One for the source and one for the language that is brought to it."""
    folder = tmp_path_factory.mktemp("tokenizers")
    source = trained(LINES * 20 + lines_of("Latin", 100), folder / "en", 180, "en")
    return {"en": source, LANGUAGE: trained(LINES * 20 + lines_of("Greek", 100), folder / LANGUAGE, 160, LANGUAGE)}


@pytest.fixture(scope="session")
def originals(checkpoints: dict[str, Made], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    """A checkpoint of every model type; ModernBERT's with biases, and one with Gemma's pieces, which mmBERT is."""
    folder = tmp_path_factory.mktemp("modernbert")
    return checkpoints | {
        MODERNBERT: make_checkpoint(folder / MODERNBERT, MODERNBERT, **MODERN_BIASES),
        MMBERT: make_checkpoint(folder / MMBERT, MODERNBERT, pieces="gemma"),
    }


@pytest.fixture(scope="session")
def primaries(
    originals: dict[str, Made], own: dict[str, Tokenizer], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """A primary of our own of each family, and one imported from every model type."""
    folder = tmp_path_factory.mktemp("primaries")
    made = {name: write_own_primary(shape, own["en"], folder / name) for name, shape in OWN_SHAPES.items()}
    for model_type, checkpoint in originals.items():
        made[model_type] = folder / model_type
        import_hf(str(checkpoint.folder), made[model_type], "en")
    return made


@pytest.fixture
def silent(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing that transformers says while it loads what we wrote."""
    root = logging.getLogger("transformers")
    root.addHandler(caplog.handler)
    yield
    root.removeHandler(caplog.handler)
    assert [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.WARNING] == []


def loaded(folder: Path, auto_class: Any) -> Any:
    model, report = auto_class.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values())
    return model.eval()


@torch.no_grad()
def their_logits(model: Any, batch: Any) -> Tensor:
    found = model(**batch)
    return torch.stack([found.start_logits, found.end_logits], -1) if "start_logits" in found else found.logits


@torch.no_grad()
def our_logits(net: Any, encoded: Encoded, tokenizer: Tokenizer) -> Tensor:
    tokens_BT, visible_BT = pad(encoded.rows, tokenizer.special.pad)
    types_BT = pad_types(encoded.types)
    if not isinstance(net, Encoder):
        return net.eval()(tokens_BT, visible_BT, types_BT)
    depth = net.shape.layers
    hidden_BTD = net.eval().hidden_states(tokens_BT, (depth,), visible_BT, types_BT)[depth]
    return net.heads[str(depth)](hidden_BTD, net.vocabulary)


def net_of(primary: Path, embeddings: Path | None, task: Path | None) -> tuple[Any, Tokenizer]:
    """Our own model in evaluation, put together as `evaluate` does it, and the tokenizer that goes with it."""
    source = load_primary(primary)
    brought = load_embeddings(embeddings) if embeddings else source
    if task:
        finetuned = load_task(task)
        finetuned.swap_in(brought)
        return finetuned.net, brought.tokenizer
    if isinstance(brought, Embeddings):
        source.swap_in(brought)
    return source.encoder, brought.tokenizer


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize(
    ("family", "kind", "target"),
    [
        pytest.param(*case, marks=() if case in DIFFERENT else pytest.mark.nightly, id="-".join(case))
        for case in itertools.product(FAMILIES, ("masked", "pairs", "questions", "tags"), WHERE)
    ],
)
def test_transformers_reads_the_same_text_as_the_same_ids_and_computes_our_logits(
    family: str, kind: str, target: str, primaries: dict[str, Path], own: dict[str, Tokenizer], tmp_path: Path
) -> None:
    primary, out = primaries[family], tmp_path / "out"
    embeddings = write_language(primary, own[LANGUAGE], tmp_path / "embeddings") if target == "target" else None
    task = write_task_of(kind, primary, tmp_path / "task") if kind in LABELS else None
    exported = export_hf(primary, out, embeddings, task)
    assert exported.difference < CLOSE
    net, pieces = net_of(primary, embeddings, task)
    model, tokenizer = loaded(out, CLASSES[kind]), AutoTokenizer.from_pretrained(out)
    assert tokenizer.is_fast
    for texts in TEXTS:
        batch = tokenizer(*texts, truncation=True, return_tensors="pt")
        encoded = encode([texts], pieces, shape_of(net))
        assert batch["input_ids"].tolist() == encoded.rows
        assert "token_type_ids" not in batch or batch["token_type_ids"].tolist() == encoded.types
        ours, theirs = our_logits(net, encoded, pieces), their_logits(model, batch)
        torch.testing.assert_close(theirs, ours, rtol=0, atol=CLOSE)
        assert ours.std() > 1000 * CLOSE


def shape_of(net: Any) -> EncoderShape:
    return net.shape if isinstance(net, Encoder) else net.encoder.shape


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("model_type", ["roberta", "bert", MODERNBERT, MMBERT])
def test_an_imported_checkpoint_comes_out_as_it_went_in(
    model_type: str, originals: dict[str, Made], primaries: dict[str, Path], tmp_path: Path
) -> None:
    export_hf(primaries[model_type], tmp_path / "out")
    made, model = originals[model_type], loaded(tmp_path / "out", transformers.AutoModelForMaskedLM)
    assert type(model) is type(made.model)
    batch = AutoTokenizer.from_pretrained(made.folder)(LINES, padding=True, return_tensors="pt", truncation=True)
    visible_BT = batch["attention_mask"].bool()
    given = batch["input_ids"][:, :38], visible_BT[:, :38]
    torch.testing.assert_close(logits_of(model, *given), logits_of(made.model, *given), rtol=0, atol=CLOSE)
    theirs = made.model.state_dict()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, theirs[name]), name


def test_a_primary_of_our_own_comes_in_again_as_it_went_out(
    primaries: dict[str, Path], own: dict[str, Tokenizer], tmp_path: Path
) -> None:
    export_hf(primaries[OWN], tmp_path / "out")
    import_hf(str(tmp_path / "out"), tmp_path / "again", "en")
    before, after = load_primary(primaries[OWN]), load_primary(tmp_path / "again")
    assert after.tokenizer.encode_all(LINES) == own["en"].encode_all(LINES)
    assert after.tokenizer.special == DEFAULT_SPECIAL_IDS
    encoded = encode([(line,) for line in LINES], own["en"], SHAPE)
    ours, again = (our_logits(primary.encoder, encoded, own["en"]) for primary in (before, after))
    torch.testing.assert_close(again, ours, rtol=0, atol=CLOSE)


@pytest.mark.parametrize(("pad_id", "segments", "activation"), [(1, 1, "relu"), (7, 3, "gelu_new")])
def test_odd_settings_of_an_imported_primary_are_exported(
    pad_id: int, segments: int, activation: str, own: dict[str, Tokenizer], tmp_path: Path
) -> None:
    """Above all positions: they stand behind the pad id, which the language that is brought has elsewhere."""
    settings = {"pad_token_id": pad_id, "type_vocab_size": segments, "hidden_act": activation, "layer_norm_eps": 1e-3}
    made = make_checkpoint(tmp_path / "checkpoint", "roberta", seed=4, **settings)
    primary = tmp_path / "primary"
    import_hf(str(made.folder), primary, "en")
    embeddings = write_language(primary, own[LANGUAGE], tmp_path / "embeddings")
    for name, brought in (("source", None), ("target", embeddings)):
        assert export_hf(primary, tmp_path / name, brought).difference < CLOSE
    config = json.loads((tmp_path / "target" / "config.json").read_text())
    assert config["pad_token_id"] == DEFAULT_SPECIAL_IDS.pad
    assert config["type_vocab_size"] == segments
    block_tokens = load_primary(primary).encoder.shape.block_tokens
    assert config["max_position_embeddings"] == block_tokens + DEFAULT_SPECIAL_IDS.pad + 1


def test_a_primary_of_our_own_is_an_xlm_roberta_with_one_row_of_types(
    primaries: dict[str, Path], tmp_path: Path
) -> None:
    export_hf(primaries[OWN], tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["model_type"], config["architectures"]) == ("xlm-roberta", ["XLMRobertaForMaskedLM"])
    assert "id2label" not in config
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    assert tensors["roberta.embeddings.token_type_embeddings.weight"].count_nonzero() == 0
    assert not {name for name in tensors if "decoder" in name or "pooler" in name}
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md"}


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("kind", ["texts", "tags"])
def test_labels_are_named_in_the_settings(kind: str, primaries: dict[str, Path], tmp_path: Path) -> None:
    export_hf(primaries[OWN], tmp_path / "out", task=write_task_of(kind, primaries[OWN], tmp_path / "task"))
    config = transformers.AutoConfig.from_pretrained(tmp_path / "out")
    assert config.id2label == dict(enumerate(LABELS[kind]))
    assert config.label2id == {label: number for number, label in enumerate(LABELS[kind])}
    assert config.num_labels == len(LABELS[kind])


def test_what_belongs_to_another_primary_is_refused(
    primaries: dict[str, Path], own: dict[str, Tokenizer], tmp_path: Path
) -> None:
    primary, other = primaries[OWN], primaries["xlm-roberta"]
    strange = write_language(other, own[LANGUAGE], tmp_path / "embeddings")
    task, foreign = (
        write_task_of("texts", primary, tmp_path / "task"),
        write_task_of("texts", other, tmp_path / "other"),
    )
    with pytest.raises(AlignmentError, match="embeddings of"):
        export_hf(primary, tmp_path / "out", strange)
    with pytest.raises(AlignmentError, match="embeddings of"):
        export_hf(primary, tmp_path / "out", strange, task)
    with pytest.raises(AlignmentError, match="the task"):
        export_hf(primary, tmp_path / "out", None, foreign)
    assert not (tmp_path / "out").exists()


def test_a_model_that_transformers_computes_otherwise_is_not_written(
    primaries: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_a_layer(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
        kept = {name: tensor for name, tensor in tensors.items() if ".layer.2." not in name}
        save_file(kept, path, metadata)

    def with_other_weights(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
        name = "roberta.encoder.layer.2.output.dense.bias"
        save_file(tensors | {name: tensors[name] * 1.01}, path, metadata)

    for damage, message in ((without_a_layer, "cannot load all"), (with_other_weights, "differ by")):
        monkeypatch.setattr(hf_export, "save_file", damage)
        with pytest.raises(ExportError, match=message):
            export_hf(primaries[OWN], tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_without_transformers_the_extra_that_brings_it_is_named(
    primaries: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"lingraft\[huggingface\]"):
        export_hf(primaries[OWN], tmp_path / "out")
