"""A language's embeddings at update 0, as an artifact of their own that training and evaluation start from.

Legend: V vocabulary, D width.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.files import require_new
from lingraft.artifacts.manifest import Kind, artifact_fingerprint
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage
from lingraft.console import say
from lingraft.data.bilingual_dictionary import read_word_pairs, translation_hashes
from lingraft.data.blocks import input_hashes, load_blocks, open_split
from lingraft.data.language_checks import PairSample, dictionary_problems, require_languages, require_none
from lingraft.data.language_detection import LanguageDetector
from lingraft.data.parallel_text import Pair, file_names, read_pairs, without_held_out
from lingraft.data.shards import Blocks
from lingraft.data.text import read_training_lines
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.model.encoder import BorrowedRows
from lingraft.model.initialisation.alignment_quality import AlignmentResource
from lingraft.model.initialisation.initial_rows import InitialRows
from lingraft.model.loading import LoadedPrimary, load_primary, save_vocabulary
from lingraft.model.swap import make_vocabulary, swap
from lingraft.stages.embeddings import ALIGNMENT, INITIALISATION, PAIRS, embeddings_details, initial_rows
from lingraft.stages.vectors import load_vectors, vectors_of
from lingraft.training.masked_lm import mean_loss
from lingraft.training.schedule import write_curve

if TYPE_CHECKING:
    from lingraft.model.initialisation.aligned_rows import AlignedRows
    from lingraft.model.initialisation.mixed_rows import RowMixer
    from lingraft.model.initialisation.translation import TranslationTable

_JUDGED_TOKENS = 8192
"""Tokens of the dev split on which aligned rows are compared with fitted ones; seconds on one core."""
_READ_TOKENS = 1_000_000
"""Tokens of the training split in which a dictionary's words are looked up; a second on one core."""


def initialise(
    recipe: Recipe,
    primary: Path,
    tokenizer: Path,
    out: Path,
    blocks: Path | None = None,
    source_vectors: Path | None = None,
    target_vectors: Path | None = None,
) -> Artifact:
    """Write a language's embeddings before any training, as [adaptation] says they start.

    They can be evaluated, exported and served like trained ones.

    Args:
        recipe: recipe, whose [adaptation] names the initialisation and the seed.
        primary: artifact whose rows are copied or imitated.
        tokenizer: tokenizer of the language.
        out: folder of the embeddings.
        blocks: blocks of the language, from which an initialisation from text computes static vectors.
        source_vectors: static vectors of the source language, from `lingraft vectors`; read only with blocks. Both are
            needed where the recipe says so (`Recipe.needs_vectors`).
        target_vectors: static vectors of the language, from the same blocks; computed if absent.

    Raises:
        RecipeError: the recipe's [encoder] is not the primary's, or its initialisation needs an input that is missing.
        TokenizerError: the primary has no pieces but special ones.
        TextError: parallel text or a dictionary cannot be read, or is not in the languages of source and target.
        ArtifactError: an input is not what it should be, or `out` cannot be written.
    """
    require_new(out)
    started = time.monotonic()
    source, pieces = load_primary(primary, recipe.primary_shape), Tokenizer.load(tokenizer)
    settings = recipe.adaptation
    if settings.initialisation.needs_text:
        found, data_hashes, mined = _from_text(
            recipe=recipe,
            primary=source,
            pieces=pieces,
            blocks=blocks,
            source_vectors=source_vectors,
            target_vectors=target_vectors,
        )
        rows, facts = found.rows, {ALIGNMENT: asdict(found.quality)}
    else:
        rows, data_hashes, facts, mined = initial_rows(recipe, source, pieces), {}, {}, ()
    step = recipe.steps_over(settings.depth)[Stage.ADAPT]
    details: dict[str, Any] = {INITIALISATION: settings.initialisation, "seed": settings.seed}
    details |= facts | embeddings_details(recipe, settings.depth, step, rows)
    with artifact.create(out, Kind.EMBEDDINGS) as draft:
        save_vocabulary(draft, make_vocabulary(rows.table_VD, rows.bias_V, rows.special, rows.borrowed), pieces)
        write_curve(draft, ())
        if mined:
            lines = (f"{pair.source}\t{pair.target}\n" for pair in mined)
            (draft.folder / PAIRS).write_text("".join(lines), encoding="utf-8")
        draft.facts = {
            "language": pieces.language,
            "aligned_with": source.fingerprint,
            "tokenizer_hash": pieces.hash,
            "data_hashes": data_hashes,
            "recipe": settings.model_dump(mode="json"),
            "details": details,
            "record": {"precision": "fp32", "device": "cpu", "elapsed_s": time.monotonic() - started},
        }
    return Artifact.load(out, Kind.EMBEDDINGS)


def masked_loss(
    primary: LoadedPrimary, blocks: Blocks, borrowed: BorrowedRows | None = None
) -> Callable[[InitialRows], float]:
    """Return a measure of a language's rows: the primary's masked loss in nats with them, on some of its blocks.

    `borrowed` rows stand behind those that are measured.
    """
    encoder = primary.encoder
    most, top = min(len(blocks), max(1, _JUDGED_TOKENS // blocks.block_tokens)), encoder.shape.layers
    blocks_NT = blocks.take(torch.arange(most) * len(blocks) // most)

    def loss(rows: InitialRows) -> float:
        own = swap(encoder, make_vocabulary(rows.table_VD, rows.bias_V, rows.special, borrowed))
        try:
            return mean_loss(encoder, blocks_NT, (top,))[top]
        finally:
            swap(encoder, own)

    return loss


@dataclass(frozen=True)
class _Resource:
    """Translations of pieces, and where they come from."""

    kind: AlignmentResource
    table: "TranslationTable | None" = None
    mined: Sequence[Pair] = ()
    data_hashes: dict[str, str] = field(default_factory=dict)


def _from_text(
    recipe: Recipe,
    primary: LoadedPrimary,
    pieces: Tokenizer,
    blocks: Path | None,
    source_vectors: Path | None,
    target_vectors: Path | None,
) -> "tuple[AlignedRows, dict[str, str], Sequence[Pair]]":
    """Rows that are computed from text, fingerprints of what they were computed from, and pairs that were mined."""
    from lingraft.model.initialisation.aligned_rows import align_rows, translate_rows  # lazy: SciPy
    from lingraft.model.initialisation.mixed_rows import RowMixer

    language, seed, by_vectors = pieces.language, recipe.adaptation.seed, recipe.needs_vectors
    recipe.require_vectors(blocks and source_vectors)
    data = load_blocks(blocks, pieces, recipe.encoder.block_tokens) if blocks else None
    train = open_split(data, "train", sequential=True) if data else None
    data_hashes = (input_hashes(data) if data else {}) | translation_hashes(recipe, language)
    # Borrowed pieces are contexts of the language's own, and translations, but have their rows already.
    own, borrowed = pieces.own, primary.borrowed_rows(pieces)
    mixer = RowMixer.of(primary.source, primary.tokenizer, own, seed, rescales=not by_vectors)
    resource = _translations(recipe, primary.tokenizer, pieces, train)
    if recipe.mines(language):
        resource = _mine(recipe, primary, pieces, mixer, resource)
    table = resource.table.first(len(own)) if resource.table else None
    if by_vectors and data and train and source_vectors:
        vectors = load_vectors(target_vectors, pieces) if target_vectors else vectors_of(train, pieces)
        found = align_rows(
            source=primary.source,
            source_pieces=primary.tokenizer,
            target_pieces=own,
            source_vectors=load_vectors(source_vectors, primary.tokenizer),
            target_vectors=vectors.first(len(own)),
            seed=seed,
            resource=resource.kind,
            table=table,
            loss=masked_loss(primary, open_split(data, "dev"), borrowed),
        )
        data_hashes |= {"source_vectors": artifact_fingerprint(source_vectors)}
    else:
        found = translate_rows(mixer, resource.kind, table)
    say(f"alignment of {language!r}: {found.quality.summary}")
    found = replace(found, rows=replace(found.rows, borrowed=borrowed))
    return found, data_hashes | resource.data_hashes, resource.mined


def _mine(recipe: Recipe, primary: LoadedPrimary, pieces: Tokenizer, mixer: "RowMixer", known: _Resource) -> _Resource:
    """Pairs of the source's and the language's training text; what was known before if there are none."""
    from lingraft.model.initialisation.mined_pairs import Text, mine_pairs  # lazy: SciPy

    digest = hashlib.sha256()
    tokenizers = primary.tokenizer, pieces
    source, target = (Text(_hashed(read_training_lines(recipe, each.language), digest), each) for each in tokenizers)
    found = mine_pairs(source, target, mixer, primary.borrowed_rows(pieces), known.table)
    hashes = {"mined_text": digest.hexdigest()}
    if found is None:
        return replace(known, data_hashes=hashes)
    return _Resource(AlignmentResource.MINED, found.table, found.pairs, hashes)


def _hashed(lines: Iterable[str], digest: "hashlib._Hash") -> Iterator[str]:
    for line in lines:
        digest.update(f"{line}\n".encode())
        yield line


def _translations(recipe: Recipe, source: Tokenizer, target: Tokenizer, blocks: Blocks | None) -> _Resource:
    """The best resource among the files that the recipe names for a language, and translations learned from it."""
    from lingraft.model.initialisation.translation import dictionary_table, parallel_table  # lazy: SciPy

    files, language, left_out = recipe.alignment, target.language, Counter[str]()
    languages = recipe.source.language, language
    if sentences := files.parallel.get(language):
        looked = PairSample(file_names(sentences))
        pairs = looked.sampled(without_held_out(read_pairs(sentences, languages, left_out), left_out))
        table = parallel_table(pairs, source, target, looked.origin)
        require_languages(looked, languages)
        _report_pairs(looked.origin, table, left_out)
        return _Resource(AlignmentResource.PARALLEL, table)
    if words := files.dictionary.get(language):
        looked = PairSample(words)
        table = dictionary_table(looked.sampled(read_word_pairs(words, languages, left_out)), source, target, words)
        text = _text_of(blocks, target) if blocks else ""
        require_none(dictionary_problems(looked, languages, LanguageDetector.load(), text), looked)
        _report_pairs(words, table, left_out)
        return _Resource(AlignmentResource.DICTIONARY, table)
    return _Resource(AlignmentResource.TEXT)


def _text_of(blocks: Blocks, pieces: Tokenizer) -> str:
    """The text of some blocks, equally far apart, with a space where the tokenizer knows that a word begins."""
    most = min(len(blocks), max(1, _READ_TOKENS // blocks.block_tokens))
    texts = ["" if each is None else f" {each.text}" if each.initial else each.text for each in pieces.surfaces()]
    ids_NT = blocks.take(torch.arange(most) * len(blocks) // most)
    return "\n".join("".join(texts[index] for index in ids) for ids in ids_NT.tolist())


def _report_pairs(origin: str, table: "TranslationTable", left_out: Counter[str]) -> None:
    reasons = [f"{count:,} {reason}" for reason, count in (left_out + Counter(table.left_out)).items()]
    say(f"{origin}: learned from {table.pairs:,} pairs; left out are {', '.join(reasons) or 'none'}.")
