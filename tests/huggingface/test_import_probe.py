"""An imported tokenizer gives transformers' ids for a few hundred texts, or is refused with the first difference."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer

from lingraft.data.tokenizer.tokenizer import Tokenizer as Ours
from lingraft.errors import TokenizerError
from lingraft.huggingface.importing import import_hf
from lingraft.huggingface.probe import first_difference, probe_texts
from lingraft.model.loading import LoadedPrimary, load_primary
from lingraft.tasks.pairs import encode
from tests.huggingface.checkpoints import LINES, Made, make_checkpoint, make_tokenizer

FILE, CONFIG = "tokenizer.json", "tokenizer_config.json"
TEXTS = [*LINES, *(line.upper() for line in LINES), "Über São Tomé", "海港 a海b", "  two  spaces "]


def changed(path: Path, **settings: Any) -> None:
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps(found | settings, ensure_ascii=False), encoding="utf-8")


def imported(folder: Path) -> LoadedPrimary:
    import_hf(str(folder), folder.parent / "primary", "en")
    return load_primary(folder.parent / "primary")


def theirs(folder: Path, texts: list[str] = TEXTS) -> Any:
    return AutoTokenizer.from_pretrained(folder)(texts, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize(
    ("normalizer", "settings"),
    [
        (normalizers.BertNormalizer(lowercase=True), {"do_lower_case": False}),
        (normalizers.BertNormalizer(lowercase=False), {"do_lower_case": True}),
        (normalizers.BertNormalizer(strip_accents=True), {"strip_accents": False}),
        (normalizers.BertNormalizer(handle_chinese_chars=True), {"tokenize_chinese_chars": False}),
        (normalizers.NFC(), {}),
    ],
)
def test_settings_beside_a_tokenizer_count_as_in_transformers(
    normalizer: Any, settings: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = make_checkpoint(tmp_path / "checkpoint", "bert")
    other = Tokenizer.from_file(str(made.folder / FILE))
    other.normalizer = normalizer
    other.save(str(made.folder / FILE))
    changed(made.folder / CONFIG, **settings)
    before = Ours.from_file(made.folder / FILE, "en").encode_all(TEXTS)
    assert imported(made.folder).tokenizer.encode_all(TEXTS) == theirs(made.folder) != before
    assert "tokenizer.json was changed by the settings beside it, as transformers does it" in capsys.readouterr().err


def test_a_space_before_each_text_counts_as_in_transformers(tmp_path: Path) -> None:
    made = make_checkpoint(tmp_path / "checkpoint", "roberta")
    changed(made.folder / CONFIG, add_prefix_space=True)
    assert imported(made.folder).tokenizer.encode_all(TEXTS) == theirs(made.folder)


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("model_type", ["roberta", "bert", "xlm-roberta", "modernbert"])
def test_added_tokens_are_found_in_texts_and_special_pieces_are_not(
    model_type: str, special: bool, tmp_path: Path
) -> None:
    tokenizer = make_tokenizer(model_type)
    tokenizer.add_tokens(["<url>", "new york", "covid19"], special_tokens=special)
    made = make_checkpoint(tmp_path / "checkpoint", model_type, vocab_size=len(tokenizer))
    tokenizer.save_pretrained(made.folder)
    found = imported(made.folder).tokenizer
    texts = ["see <url> or <URL>", "in new york", "the covid19x", "<url><url>"]
    assert found.encode_all(texts) == theirs(made.folder, texts)
    assert set(range(len(found) - 3, len(found))) <= {index for ids in found.encode_all(texts) for index in ids}
    ends = f"a {tokenizer.mask_token} b{tokenizer.sep_token} <url>"
    assert {*found.special}.intersection(found.encode(ends)) <= {found.special.unknown}


def test_a_tokenizer_class_of_another_kind_than_the_file_is_refused(
    checkpoints: dict[str, Made], tmp_path: Path
) -> None:
    folder = shutil.copytree(checkpoints["bert"].folder, tmp_path / "checkpoint")
    changed(folder / CONFIG, tokenizer_class="RobertaTokenizer")
    message = r"tokenizer\.json holds a WordPiece model, but transformers makes a BPE model.*\(RobertaTokenizer\)"
    with pytest.raises(TokenizerError, match=message):
        import_hf(str(folder), tmp_path / "primary", "en")


def test_a_single_text_in_the_second_segment_is_refused(checkpoints: dict[str, Made], tmp_path: Path) -> None:
    folder = shutil.copytree(checkpoints["bert"].folder, tmp_path / "checkpoint")
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    changed(folder / CONFIG, tokenizer_class="PreTrainedTokenizerFast", model_input_names=inputs)
    tokenizer = Tokenizer.from_file(str(folder / FILE))
    ends = [(piece, tokenizer.token_to_id(piece)) for piece in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A:1 [SEP]:1", special_tokens=ends)
    tokenizer.save(str(folder / FILE))
    with pytest.raises(TokenizerError, match="puts a single text into another segment than the first"):
        import_hf(str(folder), tmp_path / "primary", "en")


def test_a_sentencepiece_model_alone_is_refused_whatever_stands_beside_it(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "checkpoint", "xlm-roberta").folder
    (folder / FILE).unlink()
    (folder / "sentencepiece.bpe.model").write_bytes(b"")
    changed(folder / "added_tokens.json", covid19=72)
    with pytest.raises(
        TokenizerError, match=r"sentencepiece\.bpe\.model alone, .*added_tokens\.json\. Take a revision"
    ):
        import_hf(str(folder), tmp_path / "primary", "en")
    assert not (tmp_path / "primary").exists()


@pytest.mark.parametrize("count", [1, 2])
def test_texts_stand_between_the_pieces_that_the_tokenizer_puts_there(count: int, tmp_path: Path) -> None:
    """Case: <cls> and <sep> are named as well, and stand nowhere."""
    tokenizer = make_tokenizer("modernbert")
    tokenizer.add_tokens(["<s>", "</s>"], special_tokens=True)
    made = make_checkpoint(tmp_path / "checkpoint", "modernbert", vocab_size=len(tokenizer))
    ends = [(piece, tokenizer.convert_tokens_to_ids(piece)) for piece in ("<s>", "</s>")]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair=f"<s> $A {'</s> ' * count}$B </s>", special_tokens=ends
    )
    tokenizer.save_pretrained(made.folder)
    primary, loaded = imported(made.folder), AutoTokenizer.from_pretrained(made.folder)
    for texts in (("a b",), ("a b", "the harbour")):
        assert encode([texts], primary.tokenizer, primary.encoder.shape).rows[0] == loaded(*texts)["input_ids"]


def test_a_tokenizer_that_cuts_otherwise_is_refused_with_the_first_difference(
    checkpoints: dict[str, Made], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = AutoTokenizer.from_pretrained(checkpoints["bert"].folder)
    loaded.backend_tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    monkeypatch.setattr("lingraft.huggingface.tokenizer._load_transformers", lambda _: loaded)
    monkeypatch.setattr(type(loaded), "backend_tokenizer", None)
    with pytest.raises(
        TokenizerError, match=r"cannot be kept exactly: the text .* by transformers, but .* by it\. Take a"
    ):
        import_hf(str(checkpoints["bert"].folder), tmp_path / "primary", "en")


def test_the_probe_has_hundreds_of_texts_and_says_where_two_tokenizers_part(checkpoints: dict[str, Made]) -> None:
    ours = Ours.from_file(checkpoints["roberta"].folder / FILE, "en")
    texts = probe_texts(ours, ["<url>"])
    assert len(texts) == len({*texts}) >= 200
    assert {"a <url> b", "1" * 80, ""} <= {*texts}
    assert any("ᠠ" in text for text in texts)
    assert first_difference(texts, ours.encode, ours, "itself") is None
    found = first_difference(["the", "a harbour"], lambda text: ours.encode(text.removesuffix("r")), ours, "another")
    assert found is not None
    assert found.startswith("the text 'a harbour' is, from its piece ")
    assert found.endswith(" by it")
