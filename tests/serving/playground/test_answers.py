"""The playground as a browser shows it: a real server, a real page, and what each kind of answer looks like."""

import json

import numpy as np
import pytest

from tests.reports.run.browser import Page
from tests.serving.playground.browsing import (
    REFUSED,
    SHORT,
    STRANGE,
    ask,
    choose,
    infer,
    sections,
    texts_of,
)
from tests.serving.shared import SharedServer

pytestmark = pytest.mark.integration
CHINESE = "老磨坊在河边秋天磨小麦冬天磨黑麦"
TITLE = "section.querySelector('h2').textContent"
BARS = """[...section.querySelectorAll(".bar")].map(bar =>
  parseFloat(getComputedStyle(bar, "::before").width) / bar.clientWidth)"""


def test_labels_come_best_first_with_bars_as_long_as_their_probabilities(page: Page, server: SharedServer) -> None:
    choose(page, "topic", ("de", "tr"))
    ask(page, {"text-de": "ki lo mu", "text-tr": "va ze"})
    names = ["garden", "harbour", "kitchen"]
    for place, (language, text) in enumerate({"de": "ki lo mu", "tr": "va ze"}.items()):
        told = dict(zip(names, infer(server, "topic", language, text=text)["probabilities"], strict=True))
        best_first = sorted(names, key=told.__getitem__, reverse=True)
        assert sections(page, texts_of(".name"))[place] == best_first
        assert sections(page, BARS)[place] == pytest.approx([told[name] for name in best_first], abs=0.01)
        assert sections(page, texts_of("li > span:nth-child(2)"))[place] == [f"{told[name]:.1%}" for name in best_first]
    german, turkish = sections(page, TITLE)
    assert german.startswith("German ")
    assert turkish.startswith("Turkish ")
    assert german.endswith(" ms")


def test_entities_are_marked_where_they_stand_and_a_text_is_shown_as_it_was_written(
    page: Page, server: SharedServer
) -> None:
    choose(page, "names", ("de", "tr"))
    ask(page, {"text-de": SHORT, "text-tr": SHORT})
    for place, language in enumerate(("de", "tr")):
        told = infer(server, "names", language, text=SHORT)
        assert told["entity"] == [SHORT[start:end] for start, end in zip(told["start"], told["end"], strict=True)]
        assert told["entity"]
        assert sections(page, texts_of("mark"))[place] == told["entity"]
        # Isolated, so that no word turns the one beside it: names, and kinds within the text.
        assert sections(page, texts_of(".name > bdi:first-child"))[place] == told["entity"]
        named = [{"PER": "person", "LOC": "place"}[kind] for kind in told["kind"]]
        assert sections(page, texts_of(".told > bdi.kind"))[place] == named
    bare = "(copy => { copy.querySelectorAll('.kind').forEach(kind => kind.remove()); return copy.textContent })"
    assert page.evaluate("document.getElementById('does').innerText") == "Finds names in a text: place, person."
    assert sections(page, f"{bare}(section.querySelector('.told').cloneNode(true))") == [SHORT, SHORT]
    assert page.evaluate("document.querySelectorAll('.answer b, .answer :is(bdi:empty)').length") == 0


def test_answers_are_marked_in_contexts_of_any_script_and_markup_in_them_is_text(
    page: Page, server: SharedServer
) -> None:
    page.evaluate("window.run = () => { window.ran = true }")
    choose(page, "reading", ("en", "de", "tr"))
    languages, starts = ("en", "de", "tr"), []
    ask(
        page, {f"{key}-{each}": text for each in languages for key, text in (("question", "lo?"), ("context", STRANGE))}
    )
    for place, language in enumerate(languages):
        told = infer(server, "reading", language, question="lo?", context=STRANGE)
        assert told["answer"][0] == STRANGE[told["start"][0] : told["end"][0]]
        starts.append(told["start"][0])
        assert sections(page, texts_of("mark"))[place] == told["answer"]
        assert sections(page, texts_of(".name bdi"))[place] == told["answer"]
    assert max(starts) > 0, "answers before which nothing stands say nothing of offsets"
    assert sections(page, "section.querySelector('.told').textContent") == [STRANGE] * 3
    assert sections(page, "getComputedStyle(section.querySelector('.told')).direction") == ["rtl"] * 3
    assert sections(page, "section.querySelector('.told').lang") == [*languages]
    fields = "[...document.querySelectorAll('#texts textarea[id^=context]')]"
    written = page.evaluate(f"{fields}.map(field => [field.lang, getComputedStyle(field).direction])")
    assert written == [[language, "rtl"] for language in languages]
    assert page.evaluate("document.querySelectorAll('.answer img').length || window.ran") is None
    assert page.complaints == [REFUSED]


def test_what_fills_a_mask_is_shown_in_its_place(page: Page, server: SharedServer) -> None:
    choose(page, "fill-mask", ("de",))
    ask(page, {"text-de": "🌍ki <mask> lo"})
    told = infer(server, "fill-mask", "de", text="🌍ki <mask> lo")
    assert sections(page, texts_of(".name bdi:first-child")) == [told["piece"]]
    assert sections(page, "section.querySelector('.told').textContent") == [f"🌍ki {told['piece'][0]} lo"]


def test_texts_of_several_languages_are_compared_by_the_cosine_of_their_embeddings(
    page: Page, server: SharedServer
) -> None:
    texts = {"en": "mu na pe", "de": "ki lo", "tr": "va"}
    choose(page, "embeddings", tuple(texts))
    ask(page, {f"text-{language}": text for language, text in texts.items()})
    vectors = np.array([infer(server, "embeddings", *pair[:1], text=pair[1])["embedding"] for pair in texts.items()])
    shown = page.evaluate("[...document.querySelectorAll('td')].map(cell => parseFloat(cell.innerText))")
    np.testing.assert_allclose(np.reshape(shown, (3, 3)), vectors @ vectors.T, atol=1.1e-3)
    heads = page.evaluate("[...document.querySelectorAll('th[scope=row]')].map(head => head.innerText)")
    assert heads == ["English", "German", "Turkish"]


def test_a_language_is_found_out_and_named_with_how_sure_that_is(page: Page, server: SharedServer) -> None:
    text = "The weather is nice"
    choose(page, "embeddings", ("auto",))
    ask(page, {"text-auto": text})
    told = infer(server, "embeddings", "auto", text=text)
    assert told["language"] == ["en"]
    (title,) = sections(page, TITLE)
    assert title.startswith(f"English (detected, {told['language_confidence'][0]:.1%} sure)")


def test_a_text_that_is_too_long_is_read_as_far_as_it_goes_where_that_is_asked_for(
    page: Page, server: SharedServer
) -> None:
    choose(page, "topic", ("de",))
    ask(page, {"text-de": "ki lo " * 30})
    assert "reads at most 32" in page.evaluate("document.querySelector('.answer .failed').textContent")
    page.evaluate("document.getElementById('truncate').click()")
    ask(page, {})
    assert sections(page, texts_of(".failed")) == [[]]
    assert page.evaluate("document.querySelectorAll('.answer .bar').length") == 3


def test_a_text_in_another_script_is_answered_with_a_warning_and_each_request_is_shown(page: Page) -> None:
    choose(page, "topic", ("en", "de"))
    ask(page, {"text-en": "ba de", "text-de": CHINESE})
    said = "The model cannot read 100.0% of this text: do not rely on the answer."
    assert sections(page, texts_of(".failed")) == [[], [said]]
    for language, text, shown in zip(("en", "de"), ("ba de", CHINESE), sections(page, texts_of("pre")), strict=True):
        first, _, body = shown[0].partition("\n")
        assert first == "POST /v2/models/topic/infer"
        assert [each["data"] for each in json.loads(body)["inputs"]] == [[text], [language]]
