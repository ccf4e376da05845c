"""Languages added to primaries of every kind, and to text that supports few pieces."""

from pathlib import Path

import pytest
from transformers import AutoModelForMaskedLM

from lingraft import Wanted, add_language
from lingraft.errors import AlignmentError, DepthError
from lingraft.huggingface.importing import import_hf
from lingraft.model.loading import load_embeddings
from lingraft.preflight import NotReadyError
from tests.huggingface.checkpoints import make_checkpoint
from tests.new_language.given import BRIEFLY, mini_of, one_head, plain_text
from tests.workshop import Workshop


def test_an_imported_primary_learns_a_language_with_a_tokenizer_of_our_own(tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "checkpoint", "xlm-roberta")
    import_hf(str(tmp_path / "checkpoint"), tmp_path / "primary", "en")
    added = add_language(tmp_path / "primary", plain_text(tmp_path, "de"), "de", tmp_path / "de", wanted=BRIEFLY)
    model = AutoModelForMaskedLM.from_pretrained(added.hf["masked_lm"])
    assert (model.config.model_type, model.config.vocab_size) == ("xlm-roberta", added.scores.vocabulary)
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
    with pytest.raises(NotReadyError, match=f"a vocabulary of 5000 pieces .* supports {supported} at most"):
        add_language(workshop.primary, tmp_path / "few.txt", "tr", tmp_path / "more", wanted=wanted)
