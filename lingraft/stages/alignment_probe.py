"""Pairs of hidden states, a language's and the source's, of the same lines, paragraphs or pieces.

The source's evaluation keeps its side (`Reference`), so that a language is compared without the source's text. Kept are
hashes and mean hidden states, no text. Paragraphs are paired where both languages have a document of the same name with
equally many paragraphs; where there are too few, the contexts of shared pieces are compared.

Legend: N pairs, T tokens, D width, V vocabulary, K pieces.
"""

import hashlib
import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from pathlib import Path
from typing import NamedTuple, Self

import torch
from torch import Tensor

from lingraft.artifacts.artifact import Artifact
from lingraft.config.recipe import Recipe
from lingraft.console import say
from lingraft.data.blocks import open_split as blocks_of
from lingraft.data.parallel_text import HELD_OUT_EVERY, file_names, is_held_out, read_pairs
from lingraft.data.shards import Blocks
from lingraft.data.splits import SplitName
from lingraft.data.text import read_split
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.model.encoder import Encoder
from lingraft.model.initialisation.initial_rows import shared_pieces
from lingraft.model.initialisation.piece_classes import PieceClass, classes_of
from lingraft.model.loading import LoadedPrimary
from lingraft.stages.results import AlignmentBasis, require_source
from lingraft.stages.transfer_metrics import RetrievalResult, context_states, mean_states, retrieve
from lingraft.training import precision

PART = "alignment"
"""Tensors of a source's evaluation that hold its reference."""
JUDGED: tuple[SplitName, ...] = ("dev", "test")
"""Splits that languages are compared on."""
MOST_PAIRS = 500
FEWEST_PAIRS = 20
"""Pairs that a score needs; with fewer it would be noise."""
FEWEST_PIECES = 5
"""Pieces that a paragraph needs; headings such as 'Note' tell little."""
_MOST_PARAGRAPHS, _MOST_PIECES = 2000, 2000
"""Limits that keep a reference small; each language finds counterparts of some of its entries."""
_FEWEST_OCCURRENCES = 8
MOST_TOKENS = 1 << 16
"""Tokens of a split's paragraphs, and of blocks in which pieces are looked for."""
_DEPTHS = "depths"


class Paragraph(NamedTuple):
    """A paragraph of a document."""

    key: int
    """Hash of the document's name, the paragraph's number, and how many there are: equal in parallel documents."""
    digest: int
    """Hash of the text."""
    text: str


@dataclass(frozen=True, eq=False)
class Reference:
    """The source's side of the comparison: hidden states by layer, of its dev and test split."""

    tensors: Mapping[str, Tensor]
    mark: str
    """Fingerprint of the tensors."""

    @classmethod
    def load(cls, evaluation: Path, primary: LoadedPrimary) -> Self:
        """Load the reference of a source's evaluation.

        Raises:
            ArtifactError: not an evaluation of a source, or damaged.
            AlignmentError: it is of another primary.
        """
        found = require_source(evaluation, primary.fingerprint)
        return cls(found.tensors(PART), found.manifest.fingerprint_of(PART))

    @property
    def depths(self) -> tuple[int, ...]:
        """Layers whose states are kept, rising; the last is the top."""
        return tuple(self.tensors[_DEPTHS].tolist())

    def states(self, split: SplitName, of: str) -> dict[int, Tensor]:
        """Hidden states in float32 by layer; `of` is 'paragraphs' or 'pieces'."""
        return {depth: self.tensors[f"{split}/{of}/{depth}"].float() for depth in self.depths}


def reference_tensors(
    primary: LoadedPrimary,
    text: Artifact,
    blocks: Artifact,
    depths: Sequence[int],
    most_tokens: int = MOST_TOKENS,
) -> dict[str, Tensor]:
    """Compute a reference: the primary's hidden states of its own language.

    Args:
        primary: primary with its own vocabulary.
        text: text of the source language.
        blocks: blocks of the source language.
        depths: layers after which states are taken, rising; the last is the top.
        most_tokens: tokens of paragraphs, and tokens of blocks, of a split.
    """
    tensors = {_DEPTHS: torch.tensor(depths)}
    encoder = primary.encoder.to(precision.device())
    for split in JUDGED:
        chosen, sequences = chosen_paragraphs(text, split, primary.tokenizer)
        fitting = sum(total <= most_tokens for total in accumulate(map(len, sequences)))
        chosen, sequences = chosen[:fitting], sequences[:fitting]
        tensors[f"{split}/paragraphs/keys"] = torch.tensor([each.key for each in chosen], dtype=torch.long)
        tensors[f"{split}/paragraphs/digests"] = torch.tensor([each.digest for each in chosen], dtype=torch.long)
        ids_K, scanned_NT = _chosen_pieces(blocks_of(blocks, split), primary.tokenizer, most_tokens)
        tensors[f"{split}/pieces/ids"] = ids_K
        found = {
            "paragraphs": mean_states(encoder, sequences, depths),
            "pieces": context_states(encoder, scanned_NT, ids_K, depths),
        }
        tensors |= {f"{split}/{of}/{depth}": each.half() for of, by in found.items() for depth, each in by.items()}
    return tensors


@dataclass(frozen=True, eq=False)
class AlignmentProbe:
    """Pairs of one split, of which the source's hidden states are known and the language's are computed."""

    basis: AlignmentBasis
    source: Mapping[int, Tensor]
    """Hidden states (N, D) by layer."""
    target: Callable[[Encoder, Sequence[int]], Mapping[int, Tensor]]
    """Computes the language's hidden states with an encoder that has its vocabulary."""
    mark: str
    """Fingerprint of the source's side; pairs follow from it and from the language's text and blocks."""

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        return len(next(iter(self.source.values())))

    @property
    def depths(self) -> tuple[int, ...]:
        """Layers that are compared, rising; the last is the top."""
        return tuple(self.source)

    def measure(self, encoder: Encoder, depths: Sequence[int] | None = None) -> dict[int, RetrievalResult]:
        """Return the retrieval scores of each layer.

        Args:
            encoder: the primary's, with the language's vocabulary swapped in.
            depths: layers to compare, of `self.depths`; absent: all.
        """
        found = self.target(encoder.to(precision.device()), depths or self.depths)
        return {depth: retrieve(self.source[depth], states_ND) for depth, states_ND in found.items()}


def probe_of(
    reference: Reference, split: SplitName, source: Tokenizer, pieces: Tokenizer, text: Artifact | None, blocks: Blocks
) -> AlignmentProbe | None:
    """Pair a language's paragraphs with the source's, or their shared pieces where too few paragraphs are parallel.

    Args:
        reference: reference of the source.
        split: split that is compared.
        source: tokenizer of the source.
        pieces: tokenizer of the language.
        text: text of the language; absent: pieces are compared.
        blocks: blocks of the language's split.

    Returns:
        The pairs; None if there are fewer than `FEWEST_PAIRS` of either.
    """
    found = _of_paragraphs(reference, split, pieces, text) if text else None
    found = found or _of_pieces(reference, split, source, pieces, blocks)
    if found is None:
        say(f"alignment of {pieces.language!r} is not measured: fewer than {FEWEST_PAIRS} paragraphs or pieces to pair")
        return None
    say(f"alignment of {pieces.language!r} is measured over {found.pairs} {found.basis.label} of the {split} split")
    return found


def language_probe(
    recipe: Recipe,
    primary: LoadedPrimary,
    pieces: Tokenizer,
    split: SplitName,
    text: Artifact | None,
    blocks: Blocks,
    evaluation: Path | None,
) -> AlignmentProbe | None:
    """Pair a language with the source by the best data that there are.

    Lines that nothing was learned from come first: the recipe's own for this, or some of its parallel text; every other
    one is of the dev split. Without them, pairs are those of `probe_of`.

    Args:
        recipe: recipe, whose [alignment] names lines.
        primary: primary with its own vocabulary.
        pieces: tokenizer of the language.
        split: split that is compared, dev or test.
        text: text of the language; absent: paragraphs are not compared.
        blocks: blocks of the language's split.
        evaluation: result of `lingraft.stages.evaluate.evaluate_source`; absent: only lines are compared.

    Returns:
        The pairs; None without the source's side, or where there is too little to pair.

    Raises:
        AlignmentError: the evaluation is of another primary.
        ArtifactError: the evaluation is not one of a source, or damaged.
    """
    if lines := held_out_lines(recipe, pieces.language, split):
        return probe_of_lines(primary, lines, pieces, (recipe.adaptation.depth, primary.encoder.shape.layers))
    if evaluation is None:
        return None
    reference = Reference.load(evaluation, primary)
    return probe_of(reference=reference, split=split, source=primary.tokenizer, pieces=pieces, text=text, blocks=blocks)


def held_out_lines(recipe: Recipe, language: str, split: SplitName) -> list[tuple[str, str]]:
    """Return pairs of [alignment] that nothing was learned from, in which both sides have text; none if they are few.

    Raises:
        TextError: a file cannot be read, or is no parallel text.
    """
    judged = recipe.alignment.judged.get(language)
    files = judged or recipe.alignment.parallel.get(language)
    if files is None:
        return []
    pairs = read_pairs(files, (recipe.source.language, language))
    kept = ((pair.source, pair.target) for pair in pairs if judged or is_held_out(pair))
    lines = [*islice(kept, JUDGED.index(split), len(JUDGED) * MOST_PAIRS, len(JUDGED))]
    if len(lines) >= FEWEST_PAIRS:
        return lines
    enough = len(JUDGED) * FEWEST_PAIRS * (1 if judged else HELD_OUT_EVERY)
    say(
        f"{file_names(files)}: of these pairs, {len(lines)} are held out to measure alignment of {language!r} on the "
        f"{split} split, fewer than {FEWEST_PAIRS}. Parallel paragraphs are compared instead, else shared pieces. To "
        f"have lines compared, give about {enough} pairs or more."
    )
    return []


def probe_of_lines(
    primary: LoadedPrimary, lines: Sequence[tuple[str, str]], pieces: Tokenizer, depths: Sequence[int]
) -> AlignmentProbe:
    """Pairs of lines, the source's first, at most `MOST_PAIRS`.

    Args:
        primary: primary with its own vocabulary.
        lines: translations of each other, each with at least one piece.
        pieces: tokenizer of the language.
        depths: layers to compare, rising.
    """
    ours, theirs = zip(*lines[:MOST_PAIRS], strict=True)
    states = mean_states(primary.encoder.to(precision.device()), primary.tokenizer.encode_all(ours), depths)
    mark = hashlib.sha256(repr((primary.fingerprint, ours, theirs)).encode()).hexdigest()
    return AlignmentProbe(AlignmentBasis.LINES, states, _reader(pieces.encode_all(theirs)), mark)


def paragraphs(text: Artifact, split: SplitName) -> Iterator[list[Paragraph]]:
    """Paragraphs of each document: its lines that are not blank."""
    for document in read_split(text, split):
        lines = [line for line in map(str.strip, document.text.split("\n")) if line]
        yield [
            Paragraph(digest_of(f"{document.name}\n{number} of {len(lines)}"), digest_of(line), line)
            for number, line in enumerate(lines)
        ]


def digest_of(text: str) -> int:
    """Return a hash of a text, a signed number of 64 bits."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=True)


def chosen_paragraphs(
    text: Artifact, split: SplitName, pieces: Tokenizer
) -> tuple[list[Paragraph], list[Sequence[int]]]:
    """Choose distinct paragraphs, one of every document before a second of any; return them with their ids."""
    ranked = (
        (rank, each.key, each)
        for document in paragraphs(text, split)
        for rank, each in enumerate(sorted(document, key=lambda each: each.key))
    )
    first = [each for _, _, each in heapq.nsmallest(4 * _MOST_PARAGRAPHS, ranked)]
    return _distinct(first, pieces, _MOST_PARAGRAPHS)


def _distinct(
    candidates: Sequence[Paragraph], pieces: Tokenizer, most: int
) -> tuple[list[Paragraph], list[Sequence[int]]]:
    """The first paragraphs that are long enough and differ in key and text, and their ids."""
    keys, digests = set[int](), set[int]()
    chosen: list[Paragraph] = []
    sequences: list[Sequence[int]] = []
    for each, ids in zip(candidates, pieces.encode_all([each.text for each in candidates]), strict=True):
        if len(ids) < FEWEST_PIECES or each.key in keys or each.digest in digests:
            continue
        keys.add(each.key)
        digests.add(each.digest)
        chosen.append(each)
        sequences.append(ids)
        if len(chosen) == most:
            break
    return chosen, sequences


def _of_paragraphs(reference: Reference, split: SplitName, pieces: Tokenizer, text: Artifact) -> AlignmentProbe | None:
    keys_N, digests_N = (reference.tensors[f"{split}/paragraphs/{name}"].tolist() for name in ("keys", "digests"))
    rows, _, sequences = translated_paragraphs(keys_N, digests_N, split, pieces, text)
    if len(rows) < FEWEST_PAIRS:
        return None
    rows_N = torch.tensor(rows)
    states = {depth: each_ND[rows_N] for depth, each_ND in reference.states(split, "paragraphs").items()}
    return AlignmentProbe(AlignmentBasis.PARALLEL, states, _reader(sequences), reference.mark)


def translated_paragraphs(
    keys: Sequence[int], digests: Sequence[int], split: SplitName, pieces: Tokenizer, text: Artifact
) -> tuple[list[int], list[str], list[Sequence[int]]]:
    """Find the paragraphs of a language that are parallel to some of the source's, at most `MOST_PAIRS`.

    Args:
        keys: `Paragraph.key` of the source's.
        digests: `Paragraph.digest` of the source's.
        split: split that they are of.
        pieces: tokenizer of the language.
        text: text of the language.

    Returns:
        For each paragraph the number of the source's, from 0, its text, and the ids of its pieces.
    """
    row_of, known = {key: row for row, key in enumerate(keys)}, set(digests)
    # Text that is the same in both languages would be found by any embeddings.
    found = {
        each.key: each
        for document in paragraphs(text, split)
        for each in document
        if each.key in row_of and each.digest not in known
    }
    in_order = sorted(found.values(), key=lambda each: row_of[each.key])
    chosen, sequences = _distinct(in_order, pieces, MOST_PAIRS)
    return [row_of[each.key] for each in chosen], [each.text for each in chosen], sequences


def _reader(sequences: Sequence[Sequence[int]]) -> Callable[[Encoder, Sequence[int]], Mapping[int, Tensor]]:
    return lambda encoder, depths: mean_states(encoder, sequences, depths)


def _chosen_pieces(blocks: Blocks, pieces: Tokenizer, most_tokens: int) -> tuple[Tensor, Tensor]:
    """Ids (K) of the most frequent pieces with letters, and the blocks (N, T) that they were counted in."""
    scanned_NT, counts_V = _scanned(blocks, len(pieces), most_tokens)
    letters = {PieceClass.INITIAL, PieceClass.CONTINUATION}
    counts = zip(counts_V.tolist(), classes_of(pieces), strict=True)
    often = [(-count, index) for index, (count, kind) in enumerate(counts) if kind in letters]
    ids = [index for count, index in sorted(often)[:_MOST_PIECES] if -count >= _FEWEST_OCCURRENCES]
    return torch.tensor(ids, dtype=torch.long), scanned_NT


def _scanned(blocks: Blocks, vocabulary: int, most_tokens: int = MOST_TOKENS) -> tuple[Tensor, Tensor]:
    """Some blocks (N, T), equally far apart, and how often each piece (V) occurs in them."""
    most = min(len(blocks), max(1, most_tokens // blocks.block_tokens))
    scanned_NT = blocks.take(torch.arange(most) * len(blocks) // most)
    return scanned_NT, scanned_NT.flatten().bincount(minlength=vocabulary)


def _of_pieces(
    reference: Reference, split: SplitName, source: Tokenizer, pieces: Tokenizer, blocks: Blocks
) -> AlignmentProbe | None:
    scanned_NT, counts_V = _scanned(blocks, len(pieces))
    row_of = {index: row for row, index in enumerate(reference.tensors[f"{split}/pieces/ids"].tolist())}
    shared = {  # one of several pieces with the same surface
        row_of[ours]: index
        for index, ours in shared_pieces(source, pieces).items()
        if ours in row_of and counts_V[index] >= _FEWEST_OCCURRENCES
    }
    pairs = sorted(shared.items(), key=lambda pair: (-int(counts_V[pair[1]]), pair))[:MOST_PAIRS]
    if len(pairs) < FEWEST_PAIRS:
        return None
    rows_K, ids_K = torch.tensor(pairs).T
    states = {depth: each_KD[rows_K] for depth, each_KD in reference.states(split, "pieces").items()}

    def target(encoder: Encoder, depths: Sequence[int]) -> Mapping[int, Tensor]:
        return context_states(encoder, scanned_NT, ids_K, depths)

    return AlignmentProbe(AlignmentBasis.PIECES, states, target, reference.mark)
