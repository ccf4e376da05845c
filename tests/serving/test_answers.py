"""Every kind of answer, by models without a transport, held to PyTorch's; offsets into texts as they were sent."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kserve import InferRequest

from lingraft.errors import RequestError
from lingraft.model.loading import LoadedPrimary, load_primary
from lingraft.serving.model import ServingContext
from lingraft.serving.repository import Repository
from lingraft.serving.served_bundles import ServedBundles
from lingraft.serving.settings import ServingSettings
from lingraft.tasks.pairs import encode, pad
from lingraft.tasks.squad import Answer, Question
from lingraft.tasks.squad_answers import best_answers
from lingraft.tasks.squad_windows import cut
from lingraft.tasks.tagged_sentences import Sentence
from lingraft.tasks.tagging import predicted_tags
from tests.serving.answers import LANGUAGES, brought, sentences, speaking
from tests.serving.asking import RLM, ZWSP, inputs
from tests.tiny import Tiny

WORDS = " ".join(sentences("en", (12, 12, 12)))
CONTEXTS = {
    "direction marks": f"{RLM}القمح{RLM} kilo de\u202b ba \u202c pelo {RLM}(naze){RLM} so tu.",
    "combining marks": "cafe\u0301 ba de\u0301ki \u0928\u0926\u0940 lo \u0915\u094d\u0937 pelo",
    "compatibility forms": "ﬁre Ⅷ ½ kilo ①② ｋｉｌｏ ﷺ de",
    "blanks": "\u3000ba\u00a0de  \t\n ki\r\nlo\u2028pe ",
    "long": WORDS * 4,
}


@dataclass(frozen=True)
class Asking:
    repository: Repository
    runner: asyncio.Runner

    def __call__(self, model: str, languages: list[str], parameters: Any = None, **texts: list[str]) -> dict[str, Any]:
        sent = json.dumps(inputs(languages, **texts) | {"parameters": parameters}).encode()
        request = InferRequest.from_bytes(sent, len(sent), model)
        answered = self.runner.run(self.repository.get_model(model).predict(request))
        return {each.name: each.data for each in answered.outputs}


@pytest.fixture(scope="module")
def ask(bundles: list[Path]) -> Iterator[Asking]:
    with asyncio.Runner() as runner:
        served = ServedBundles.load(bundles)
        yield Asking(Repository(served, ServingContext(served.bundles, ServingSettings())), runner)


def task_of(bundle: Path) -> Path:
    return bundle.parent / "tasks" / bundle.name


@torch.inference_mode()
def test_pairs_are_read_as_pairs(ask: Asking, tiny: Tiny, bundles: list[Path]) -> None:
    for language in LANGUAGES:
        first, second = sentences(language, (2, 3, 9)), sentences(language, (5, 1, 2))
        task, own = speaking(tiny, task_of(bundles[1]), language), brought(tiny, language).tokenizer
        encoded = encode(list(zip(first, second, strict=True)), own, task.shape)
        expected_NC = task.net(*pad(encoded.rows, own.special.pad)).softmax(1)
        found = ask("inference", [language], text=first, text_pair=second)
        np.testing.assert_allclose(found["probabilities"], expected_NC.numpy(), atol=1e-5)
        assert found["label"].tolist() == [task.labels[best] for best in expected_NC.argmax(1)]


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)
def test_a_passage_is_pytorch_s_and_stands_where_its_offsets_say(
    ask: Asking, tiny: Tiny, bundles: list[Path], context: str
) -> None:
    for language in LANGUAGES:
        task = speaking(tiny, task_of(bundles[2]), language)
        question = Question("q", context, "ba de ki", (Answer("", 0),))
        [expected, *_], *_ = best_answers(task.net, cut([question], brought(tiny, language).tokenizer, task.shape))
        found = {
            name: values[0]
            for name, values in ask("reading", [language], question=["ba de ki"], context=[context]).items()
        }
        assert (found["answer"], found["start"], found["end"]) == (expected.text, expected.start, expected.end)
        assert context[found["start"] : found["end"]] == found["answer"]
        assert found["score"] == pytest.approx(expected.score, abs=1e-4)
        assert 0 < found["probability"] <= 1


@pytest.mark.parametrize("text", [text for name, text in CONTEXTS.items() if name != "long"])
def test_entities_stand_where_their_offsets_say(ask: Asking, text: str) -> None:
    found = ask("names", ["en"], {"truncate": True}, text=[text, "kilo"])
    assert len(found["entity"]) > 0
    for place, start, end, entity in zip(
        *(found[name] for name in ("text_index", "start", "end", "entity")), strict=True
    ):
        assert [text, "kilo"][place][start:end] == entity
        assert entity.strip(f"{RLM}{ZWSP} ")
    assert set(found["kind"]) <= {"LOC", "PER"}


def test_entities_are_pytorch_s(ask: Asking, tiny: Tiny, bundles: list[Path]) -> None:
    for language in LANGUAGES:
        [text] = sentences(language, (6,))
        task, words = speaking(tiny, task_of(bundles[3]), language), tuple(text.split())
        sentence = Sentence("here", words, ("O",) * len(words))
        data = task.kind.prepare([sentence], task.labels, brought(tiny, language).tokenizer, task.shape)
        (expected,) = predicted_tags(task.net, data)
        found = ask("names", [language], text=[text])
        kinds = dict(zip(found["start"], found["kind"], strict=True))
        starts = [sum(len(word) + 1 for word in words[:place]) for place in range(len(words))]
        begun = {start for start, tag in zip(starts, expected, strict=True) if tag.startswith("B-")}
        assert begun <= set(kinds)
        assert all(kinds[start] == tag[2:] for start, tag in zip(starts, expected, strict=True) if start in begun)


@torch.inference_mode()
def test_masks_are_filled_as_pytorch_does(ask: Asking, tiny: Tiny) -> None:
    for language in LANGUAGES:
        before, behind = sentences(language, (2, 3))
        primary, own = load_primary(tiny.primary), brought(tiny, language)
        vocabulary = own.encoder.vocabulary if isinstance(own, LoadedPrimary) else own.vocabulary
        special, tokenizer = own.tokenizer.special, own.tokenizer
        ids = [special.begin, *tokenizer.encode(before), special.mask, *tokenizer.encode(behind), special.end]
        encoder = primary.encoder.eval()
        encoder.vocabulary = vocabulary
        depth = encoder.depths[-1]
        hidden_BTD = encoder.hidden_states(torch.tensor([ids]), (depth,))[depth]
        mask = len(tokenizer.encode(before)) + 1
        expected_V = encoder.heads[str(depth)](hidden_BTD[:, mask], vocabulary)[0].softmax(0)
        expected_V[list(special)] = -1
        found = ask("fill-mask", [language], {"top_k": 3}, text=[f"{before} <mask> {behind}"])
        np.testing.assert_allclose(found["probability"][0], expected_V.topk(3).values.numpy(), atol=1e-5)
        surfaces = tokenizer.surfaces()
        best = [surfaces[index] for index in expected_V.topk(3).indices.tolist()]
        assert found["piece"][0].tolist() == [surface.text for surface in best if surface]
        assert found["begins_word"][0].tolist() == [surface.initial for surface in best if surface]
        assert (found["text_index"].tolist(), found["start"].tolist()) == ([0], [len(before) + 1])


def test_several_masks_of_several_texts_are_told_apart(ask: Asking) -> None:
    texts = ["<mask> ba <mask>", "ki lo", "ba <mask>"]
    found = ask("fill-mask", ["en", "de", "tr"], text=[texts[0], "<mask>", texts[2]])
    assert found["text_index"].tolist() == [0, 0, 1, 2]
    assert found["start"].tolist() == [0, 10, 0, 3]
    assert found["piece"].shape == (4, 5)
    with pytest.raises(RequestError, match=r"text 1 has 0 masks, written <mask>"):
        ask("fill-mask", ["en"], text=texts)


@torch.inference_mode()
def test_embeddings_are_means_over_tokens(ask: Asking, tiny: Tiny) -> None:
    for language in LANGUAGES:
        texts, own = sentences(language), brought(tiny, language)
        encoder = load_primary(tiny.primary).encoder.eval()
        encoder.vocabulary = own.encoder.vocabulary if isinstance(own, LoadedPrimary) else own.vocabulary
        depth = encoder.shape.layers
        rows = encode([(text,) for text in texts], own.tokenizer, encoder.shape).rows
        expected_ND = torch.stack(
            [encoder.hidden_states(torch.tensor([row]), (depth,))[depth][0].mean(0) for row in rows]
        )
        plain = ask("embeddings", [language], {"normalize": False}, text=texts)["embedding"]
        np.testing.assert_allclose(plain, expected_ND.numpy(), atol=1e-4)
        normal = ask("embeddings", [language], text=texts)["embedding"]
        np.testing.assert_allclose(normal, plain / np.linalg.norm(plain, axis=1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize(
    ("model", "texts", "said"),
    [
        ("reading", {"question": ["ba " * 40], "context": ["ba"]}, "more than half of the 32 tokens"),
        ("reading", {"question": ["ba"], "context": ["ba " * 6000]}, "windows of 32 tokens"),
        ("reading", {"question": ["ba", "de"], "context": ["ba"]}, "send as many of each"),
        ("names", {"text": ["ba " * 40]}, "reads at most 32"),
        ("fill-mask", {"text": ["<mask> " * 33]}, "has 33 masks"),
        ("fill-mask", {"text": ["ba " * 40 + "<mask>"]}, "reads at most 32"),
        ("inference", {"text": ["ba"]}, "send one 'text' and one 'text_pair' and one 'language'"),
    ],
)
def test_what_does_not_fit_is_refused(ask: Asking, model: str, texts: dict[str, list[str]], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        ask(model, ["en"], **texts)


@pytest.mark.parametrize("value", [0, 101, 2.0, True, "5"])
def test_a_number_of_pieces_that_is_not_possible_is_refused(ask: Asking, value: Any) -> None:
    with pytest.raises(RequestError, match="must be a whole number from 1 to 100"):
        ask("fill-mask", ["en"], {"top_k": value}, text=["<mask>"])


def test_questions_in_a_batch_are_answered_as_alone(ask: Asking) -> None:
    contexts = list(CONTEXTS.values())
    languages = [LANGUAGES[place % 3] for place in range(len(contexts))]
    together = ask("reading", languages, question=["ba de ki"] * len(contexts), context=contexts)
    for place, (language, context) in enumerate(zip(languages, contexts, strict=True)):
        alone = ask("reading", [language], question=["ba de ki"], context=[context])
        assert [together[name][place] for name in ("answer", "start", "end")] == [
            alone[name][0] for name in ("answer", "start", "end")
        ]
