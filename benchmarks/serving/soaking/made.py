"""Models that the soak serves: bundles of random weights, in versions whose answers differ plainly.

Attention has to see the words for that, so matrices are drawn as wide as their input and rows of tables as wide as 1;
the small deviations that training begins with would answer every text alike.

Legend: N texts, C classes.
"""

import json
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from benchmarks.serving.soaking.answers import LIKE
from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.files import write_json, write_text
from lingraft.artifacts.manifest import MANIFEST, Kind
from lingraft.config.recipe import Recipe
from lingraft.data import text
from lingraft.data.tokenizer import tokenizer
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import ServingError
from lingraft.export import export_bundle as export
from lingraft.model.encoder import Encoder, Vocabulary
from lingraft.model.loading import save_vocabulary
from lingraft.serving.handlers.handler import softmax
from lingraft.serving.served_bundles import ServedBundles
from lingraft.tasks.classification import Classifier
from lingraft.tasks.finetuned import save_task
from lingraft.tasks.pairs import encode

TASK, SOURCE = "topic", "en"
LABELS = ("garden", "harbour", "kitchen")
TARGETS = ("de", "sw", "tr")
HOLDINGS: Mapping[str, Mapping[str, int]] = {
    "started": {"de": 1},
    "swapped": {"de": 2},
    "grown": {"de": 2, "sw": 1, "tr": 1},
    "turned": {"de": 1, "sw": 1, "tr": 2},
    "mistaken": {"de": 3, "sw": 1, "tr": 1},
    "foreign": {"de": 2},
}
"""Bundles, and which version of each language they hold. The golden answers of German in `mistaken` are another
version's, and the body of `foreign` is another one: neither German may ever be served."""
_BODY, _OTHER_BODY = 2, 77
_LINES, _WORDS, _WORDS_A_LINE = 12_000, 20_000, 12
_TEXTS, _SHORTEST_WORDS = 32, 3


class Size(NamedTuple):
    """Size of the model that is served."""

    width: int
    layers: int
    rows: int
    """Rows of each table."""
    block_tokens: int = 128


Module = TypeVar("Module", bound=nn.Module)
Expected = dict[str, dict[str, NDArray[np.float32]]]
"""Probabilities (N, C) of the texts, by language and version."""


@dataclass(frozen=True)
class Made:
    """Bundles on disk, what is asked, and what each version says to it."""

    recipe: Recipe
    primary: Path
    embeddings: Mapping[tuple[str, int], Path]
    """Folders by language and version."""
    bundles: Mapping[str, Path]
    texts: Mapping[str, Sequence[str]]
    expected: Expected

    @classmethod
    def make(cls, size: Size, folder: Path) -> Self:
        """Write all bundles under a folder.

        Raises:
            ServingError: two versions answer a text alike, so that an answer would not tell which one it is from.
        """
        recipe = _recipe(size, folder / "source")
        pieces = dict(_tokenizers(recipe, folder))
        primary = _write_primary(recipe, pieces[SOURCE], folder / "primary")
        bodies = {seed: _write_task(recipe, primary, folder / f"task-{seed}", seed) for seed in (_BODY, _OTHER_BODY)}
        tables = {
            (language, number): _write_embeddings(pieces[language], primary, folder / f"{language}-{number}", number)
            for language, number in sorted({each for held in HOLDINGS.values() for each in held.items()})
        }
        bundles = {name: folder / "bundles" / name for name in HOLDINGS}
        for name, held in HOLDINGS.items():
            body = bodies[_OTHER_BODY if name == "foreign" else _BODY]
            export(primary, body, [tables[each] for each in held.items()], bundles[name])
        texts = {language: _texts(language, size) for language in recipe.languages}
        expected = _expected(bundles, texts)
        _mistake_golden(bundles["mistaken"], bundles["started"], "de")
        return cls(recipe=recipe, primary=primary, embeddings=tables, bundles=bundles, texts=texts, expected=expected)


def versions(name: str) -> dict[str, str]:
    """Names of the versions that a bundle holds."""
    return {SOURCE: "1", **{language: str(number) for language, number in HOLDINGS[name].items()}}


def _recipe(size: Size, source: Path) -> Recipe:
    once = {"steps": 1, "batch_blocks": 1, "learning_rate": 1e-3}
    encoder = {"attention_heads": max(1, size.width // 32), "mlm_heads": [size.layers]}
    return Recipe.model_validate(
        {
            "name": "soak",
            "source": SOURCE,
            "targets": list(TARGETS),
            "precision": "fp32",
            "text": {"kind": "folder", "path": str(source)},
            "tokenizer": {"vocabulary": size.rows},
            "encoder": encoder | {"width": size.width, "layers": size.layers, "block_tokens": size.block_tokens},
            "pretraining": once,
            "adaptation": once | {"depth": size.layers},
            "tasks": [{"name": TASK, "kind": "documents"}],
        }
    )


def _tokenizers(recipe: Recipe, folder: Path) -> Iterator[tuple[str, Path]]:
    lines = min(_LINES, 4 * recipe.tokenizer.vocabulary)
    for language in recipe.languages:
        made = [{"name": f"{number}", "text": line, "label": LABELS[0]} for number, line in _lines(language, lines)]
        written = "".join(json.dumps(each) + "\n" for each in made)
        write_text(folder / "source" / f"{language}.jsonl", written)
        text.prepare(recipe, language, folder / "text" / language)
        tokenizer.train_tokenizer(recipe, folder / "text" / language, folder / "tokenizer" / language)
        yield language, folder / "tokenizer" / language


def _lines(language: str, count: int) -> Iterator[tuple[int, str]]:
    """Lines of made-up words, numbered; other words in every language."""
    draw = random.Random(f"words of {language}")
    syllables = [one + two + three for one in "bcdfghjklmnprstvwz" for two in "aeiou" for three in ("", "n", "r", "s")]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 3))) for _ in range(_WORDS)]
    weights = [rank**-0.5 for rank in range(2, _WORDS + 2)]
    for number in range(count):
        yield number, " ".join(draw.choices(words, weights, k=_WORDS_A_LINE))


def _texts(language: str, size: Size) -> list[str]:
    """Return texts of a few words to about half a block."""
    draw = random.Random(f"texts of {language}")
    words = " ".join(line for _, line in _lines(language, _TEXTS * size.block_tokens // _WORDS_A_LINE)).split()
    longest = size.block_tokens // 5  # a word is one to three pieces of a large vocabulary, and more of a small one
    found = []
    for number in range(_TEXTS):
        start = number * longest
        found.append(" ".join(words[start : start + draw.randint(_SHORTEST_WORDS, longest)]))
    return found


def _write_primary(recipe: Recipe, tokens: Path, out: Path) -> Path:
    pieces = Tokenizer.load(tokens)
    encoder = _drawn(Encoder(recipe.encoder, len(pieces)), 1)
    with artifact.create(out, Kind.PRIMARY) as draft:
        draft.tensors("body", encoder.body_tensors())
        save_vocabulary(draft, encoder.vocabulary, pieces)
        shape = recipe.encoder.model_dump(mode="json")
        draft.facts = {"language": pieces.language, "tokenizer_hash": pieces.hash, "details": {"shape": shape}}
    return out


def _write_task(recipe: Recipe, primary: Path, out: Path, seed: int) -> Path:
    settings = recipe.task()
    net = _drawn(Classifier(Encoder(recipe.encoder, 0), len(LABELS)), seed)
    with artifact.create(out, Kind.TASK) as draft:
        save_task(draft, net)
        facts = {"task": TASK, "settings": settings.model_dump(mode="json"), "seed": seed, "labels": list(LABELS)}
        draft.facts = {
            "language": recipe.source.language,
            "aligned_with": Artifact.open(primary, Kind.PRIMARY).fingerprint,
            "details": facts | {"shape": recipe.encoder.model_dump(mode="json")},
        }
    return out


def _write_embeddings(tokens: Path, primary: Path, out: Path, seed: int) -> Path:
    pieces, body = Tokenizer.load(tokens), Artifact.open(primary, Kind.PRIMARY)
    vocabulary = _drawn(Vocabulary(len(pieces), body.manifest.details["shape"]["width"]), seed)
    with artifact.create(out, Kind.EMBEDDINGS) as draft:
        save_vocabulary(draft, vocabulary, pieces)
        facts = {"language": pieces.language, "tokenizer_hash": pieces.hash, "aligned_with": body.fingerprint}
        draft.facts = facts
    return out


@torch.no_grad()
def _drawn(module: Module, seed: int) -> Module:
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in module.named_parameters():
        if parameter.ndim == 2:
            std = 1.0 if name.endswith("table_VD") else parameter.shape[1] ** -0.5
            parameter.normal_(std=std, generator=generator)
    return module


def _mistake_golden(bundle: Path, other: Path, language: str) -> None:
    """Give a bundle another one's golden answers of a language, and a manifest that agrees."""
    manifests = [json.loads((each / MANIFEST).read_bytes()) for each in (bundle, other)]
    file = f"{language}/golden.safetensors"
    (bundle / file).unlink()
    shutil.copyfile(other / file, bundle / file)
    for fact, name in (("files", file), ("fingerprints", f"{language}/golden")):
        manifests[0][fact][name] = manifests[1][fact][name]
    write_json(bundle / MANIFEST, manifests[0])


def _expected(bundles: Mapping[str, Path], texts: Mapping[str, Sequence[str]]) -> Expected:
    found: Expected = {language: {} for language in texts}
    for name, folder in bundles.items():
        if name == "foreign":
            continue
        for language, version in versions(name).items():
            if version not in found[language]:
                found[language][version] = _said(folder, language, texts[language])
    for language, said in found.items():
        _require_unlike(language, said)
    return found


def _said(bundle: Path, language: str, texts: Sequence[str]) -> NDArray[np.float32]:
    """Probabilities (N, C) of a version, computed in this process, each text alone."""
    opened = ServedBundles.load([bundle])[TASK]
    rows = encode([(one,) for one in texts], opened.languages[language].tokenizer, opened.shape).rows
    logits_NC = [opened.body.run(*opened.gather([(language, row)]))["logits_BC"][0] for row in rows]
    return softmax(np.stack(logits_NC))


def _require_unlike(language: str, said: Mapping[str, NDArray[np.float32]]) -> None:
    numbers = sorted(said)
    for place, one in enumerate(numbers):
        for other in numbers[place + 1 :]:
            nearest = float(np.abs(said[one] - said[other]).max(1).min())
            if nearest < 10 * LIKE:
                raise ServingError(
                    f"versions {one} and {other} of {language!r} answer a text alike, to {nearest:.1g}, so that an "
                    "answer would not tell which one it is from. Choose a wider or deeper model."
                )
