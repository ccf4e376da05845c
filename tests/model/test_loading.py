from pathlib import Path
from typing import Any

import pytest
import torch

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.systems import Stage
from lingraft.data.shards import blocks_in_memory
from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS, SpecialPieces
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import AlignmentError, ArtifactError, RecipeError, TokenizerError
from lingraft.model.loading import load_embeddings, load_primary
from lingraft.stages.adapt import adaptation_run, mini_of
from lingraft.stages.embeddings import initial_rows
from lingraft.tasks.finetuned import load_task
from tests.workshop import Workshop

TOKENIZER_FILE = "tokenizer.json"


@pytest.fixture(scope="module")
def stranger(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A primary of the same shape that nothing in the workshop belongs to."""
    return workshop.other_primary(tmp_path_factory.mktemp("stranger") / "primary")


def rewritten(source: Path, kind: Kind, out: Path, part: str, **changed: Any) -> Path:
    """A sound artifact like another, with other tensors in one part; None leaves a tensor out."""
    found = Artifact.load(source, kind)
    with artifact.create(out, kind) as draft:
        for name in found.manifest.fingerprints:
            tensors = found.tensors(name) | (changed if name == part else {})
            draft.tensors(name, {key: tensor for key, tensor in tensors.items() if tensor is not None})
        if (source / TOKENIZER_FILE).exists():
            (draft.folder / TOKENIZER_FILE).write_bytes((source / TOKENIZER_FILE).read_bytes())
        draft.facts = {"language": found.manifest.language, "details": found.manifest.details}
    return out


def test_artifacts_carry_their_tokenizer_and_name_the_primary_they_belong_to(workshop: Workshop) -> None:
    primary = load_primary(workshop.primary)
    assert primary.tokenizer.hash == Tokenizer.load(workshop.tokenizers["en"]).hash
    for language, folder in workshop.embeddings.items():
        found = load_embeddings(folder)
        assert found.tokenizer.hash == Tokenizer.load(workshop.tokenizers[language]).hash
        assert (found.language, found.tokenizer.language) == (language, language)
        assert found.aligned_with == primary.fingerprint
    assert {load_task(folder).aligned_with for folder in workshop.tasks.values()} == {primary.fingerprint}


def test_embeddings_of_another_primary_are_refused_with_both_fingerprints(workshop: Workshop, stranger: Path) -> None:
    primary, german = load_primary(stranger), load_embeddings(workshop.embeddings["de"])
    own = primary.encoder.vocabulary
    with pytest.raises(AlignmentError) as caught:
        primary.swap_in(german)
    assert "embeddings of 'de'" in str(caught.value)
    assert german.aligned_with in str(caught.value)
    assert primary.fingerprint in str(caught.value)
    assert german.aligned_with != primary.fingerprint
    assert primary.encoder.vocabulary is own


def test_a_task_refuses_embeddings_of_another_primary(workshop: Workshop, stranger: Path, tmp_path: Path) -> None:
    workshop.adapt("de", 1, tmp_path / "theirs", primary=stranger)
    task, theirs = load_task(workshop.tasks[1]), load_embeddings(tmp_path / "theirs")
    with pytest.raises(AlignmentError) as caught:
        task.swap_in(theirs)
    assert theirs.aligned_with in str(caught.value)
    assert task.aligned_with in str(caught.value)
    with pytest.raises(AlignmentError, match="the task"):
        task.swap_in(load_primary(stranger))


def test_a_task_takes_the_languages_of_its_primary_in_turn(workshop: Workshop) -> None:
    task = load_task(workshop.tasks[1])
    tokens_BT = workshop.tokens("de")
    visible_BT = torch.ones_like(tokens_BT, dtype=torch.bool)
    found = []
    for brought in (
        load_primary(workshop.primary),
        load_embeddings(workshop.embeddings["de"]),
        load_primary(workshop.primary),
    ):
        task.swap_in(brought)
        with torch.no_grad():
            found.append(task.net.eval()(tokens_BT, visible_BT))
    assert torch.equal(found[0], found[2])
    assert not torch.equal(found[0], found[1])


def test_a_primary_of_another_shape_than_the_recipes_is_refused(workshop: Workshop) -> None:
    shape = workshop.recipe.encoder
    assert load_primary(workshop.primary, shape).encoder.shape == shape
    for chosen in ({"mlm_heads": (3,)}, {"block_tokens": 8}, {"dropout": 0.1}):  # how it is trained, not what it is
        load_primary(workshop.primary, shape.model_copy(update=chosen))
    for other in ({"layers": 4, "mlm_heads": (1, 4)}, {"block_tokens": 64}, {"width": 8}):
        with pytest.raises(RecipeError, match=r"\[encoder\] is not that of the primary in .*primary"):
            load_primary(workshop.primary, shape.model_copy(update=other))


@pytest.mark.parametrize(
    "change",
    [
        {"layers.1.up.weight": None},
        {"layers.1.up.weight": torch.zeros(2, 2)},
        {"layers.9.up.weight": torch.zeros(2, 2)},
    ],
    ids=["missing", "misshapen", "surplus"],
)
def test_a_body_that_does_not_fit_its_shape_is_refused_with_the_tensor(
    workshop: Workshop, tmp_path: Path, change: dict[str, Any]
) -> None:
    primary = rewritten(workshop.primary, Kind.PRIMARY, tmp_path / "primary", "body", **change)
    task = rewritten(workshop.tasks[1], Kind.TASK, tmp_path / "task", "body", **change)
    for load, folder in ((load_primary, primary), (load_task, task)):
        with pytest.raises(ArtifactError, match=r"body of .* does not fit .*\['layers\.\d\.up\.weight'\]"):
            load(folder)


def test_a_table_that_does_not_fit_its_tokenizer_is_refused(workshop: Workshop, tmp_path: Path) -> None:
    width = workshop.recipe.encoder.width
    folder = rewritten(
        workshop.embeddings["de"], Kind.EMBEDDINGS, tmp_path / "out", "vocabulary", table_VD=torch.zeros(7, width)
    )
    with pytest.raises(TokenizerError, match="7 rows, but its tokenizer has 120 pieces"):
        load_embeddings(folder)


def test_a_vocabulary_keeps_its_tokenizers_special_ids_in_training_too(workshop: Workshop, tmp_path: Path) -> None:
    found, theirs = (
        Artifact.load(workshop.primary, Kind.PRIMARY),
        SpecialPieces(begin=7, pad=5, end=8, unknown=3, mask=6),
    )
    with artifact.create(tmp_path / "primary", Kind.PRIMARY) as draft:
        for part in ("body", "vocabulary"):
            draft.tensors(part, found.tensors(part))
        (draft.folder / TOKENIZER_FILE).write_bytes((workshop.primary / TOKENIZER_FILE).read_bytes())
        draft.facts = {"language": "en", "details": found.manifest.details | {"special_ids": theirs._asdict()}}
    primary = load_primary(tmp_path / "primary")
    assert primary.encoder.vocabulary.special == primary.tokenizer.special == theirs
    step = workshop.recipe.steps_over(1)[Stage.ADAPT]
    mini, rows = mini_of(primary, step, None), initial_rows(workshop.recipe, primary, primary.tokenizer)
    adaptation_run(
        workshop.recipe, step, mini, rows, blocks_in_memory(workshop.tokens("en")), workshop.recipe.adaptation
    )
    assert mini.vocabulary.special == theirs
    assert load_primary(workshop.primary).encoder.vocabulary.special == DEFAULT_SPECIAL_IDS
