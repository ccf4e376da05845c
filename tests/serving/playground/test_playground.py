"""The playground in a browser: who gets in, what it may load, and what each kind of answer looks like."""

import json
from pathlib import Path

import httpx
import numpy as np
import pytest

from pipelines.endpoint import run_server
from tests.reports.run.browser import Page, new_page
from tests.serving.playground.browsing import REFUSED, SHORT, STRANGE, answered, ask, choose, infer, sections, texts_of
from tests.serving.shared import TOKEN, SharedServer

pytestmark = pytest.mark.integration
CHINESE = "老磨坊在河边秋天磨小麦冬天磨黑麦"
TITLE = "section.querySelector('h2').textContent"
BARS = """[...section.querySelectorAll(".bar")].map(bar =>
  parseFloat(getComputedStyle(bar, "::before").width) / bar.clientWidth)"""
INTRUDERS = (
    "document.body.append(Object.assign(new Image(), {src: 'http://localhost:9/'}))",
    "fetch('http://localhost:9/').catch(() => 0)",
    "document.body.setAttribute('style', 'color: red')",
    "document.body.setAttribute('onclick', 'run()')",
    "document.body.innerHTML = '<p>'",
)


def test_the_token_is_asked_for_refused_in_the_server_s_words_and_kept_in_memory_alone(
    locked: Page, server: SharedServer
) -> None:
    trouble = "document.getElementById('trouble').innerText"
    assert locked.evaluate(trouble) == ""
    headers = {"authorization": "Bearer wrong"}
    refusal = httpx.get(f"{server.url}/v2/models", headers=headers, trust_env=False).json()["error"]
    locked.write("wrong")
    locked.press("Enter")
    locked.wait(f"{trouble}.includes({refusal!r})")
    assert not locked.evaluate("question.checkVisibility()")
    locked.write(f" {TOKEN} ")
    locked.press("Enter")
    locked.wait("document.activeElement.id == 'model'")
    assert not locked.evaluate(f"access.checkVisibility() || {trouble}")
    kept = locked.evaluate("[localStorage.length, sessionStorage.length, document.cookie, token.value, location.href]")
    assert kept == [0, 0, "", "", f"{server.url}/ui"]


def test_the_page_opens_with_the_recipe_s_examples_in_the_source_language_first(page: Page) -> None:
    chips = "[...document.querySelectorAll('#languages label')].map(each => each.innerText.trim())"
    assert page.evaluate(chips) == ["English", "German", "Turkish", "Detect the language"]
    assert page.evaluate("document.getElementById('does').innerText") == "Chooses one of: garden, harbour, kitchen."
    fields = "[...document.querySelectorAll('#texts textarea')].map(each => [each.id, each.value])"
    assert page.evaluate(fields) == [["text-en", "ba de"], ["text-de", "ki lo"]]
    page.evaluate("ask.click()")
    answered(page)
    assert sections(page, "section.ariaLabel") == ["English", "German"]


def test_where_no_token_is_asked_for_the_page_answers_at_once_until_the_server_is_gone(bundle: Path, port: int) -> None:
    with run_server([bundle]) as free, new_page(port) as page:
        page.visit(f"{free.url}/ui")
        page.wait("question.checkVisibility()")
        assert not page.evaluate("access.checkVisibility()")
        ask(page, {"text-de": "ki lo", "text-en": "va"})
        assert page.evaluate("document.getElementById('status').innerText").startswith("2 of 2 answered.")
        assert not page.complaints
        free.process.terminate()
        free.process.wait()
        ask(page, {"text-de": "ki"})
        for (said,) in sections(page, texts_of(".failed")):
            assert said.startswith("The server cannot be reached (")


def test_the_page_refuses_what_would_come_from_elsewhere_or_be_run_from_text(page: Page) -> None:
    for intruder in INTRUDERS:
        before = len(page.complaints)
        page.evaluate(f"setTimeout(() => {{ {intruder} }})")
        page.wait_for(lambda before=before: len(page.complaints) > before, intruder)
        said = page.complaints[before:]
        assert all("Content Security Policy" in each or "Trusted" in each for each in said), said


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


def test_a_language_is_found_out_and_a_refusal_stands_beside_other_answers(page: Page, server: SharedServer) -> None:
    choose(page, "topic", ("de", "auto"))
    ask(page, {"text-de": "ki lo " * 30, "text-auto": "The weather is nice"})
    told = infer(server, "topic", "auto", text="The weather is nice")
    assert sections(page, TITLE)[1].startswith(f"English (detected, {told['language_confidence'][0]:.1%} sure)")
    refused = infer(server, "topic", "de", text="ki lo " * 30)["error"]
    assert sections(page, texts_of(".failed"))[0] == [refused]
    page.evaluate("document.getElementById('truncate').click()")
    ask(page, {})
    assert sections(page, texts_of(".failed"))[0] == []


def test_a_text_in_another_script_is_answered_with_a_warning_and_each_request_is_shown(page: Page) -> None:
    choose(page, "topic", ("en", "de"))
    ask(page, {"text-en": "ba de", "text-de": CHINESE})
    said = "The model cannot read 100.0% of this text: do not rely on the answer."
    assert sections(page, texts_of(".failed")) == [[], [said]]
    for language, text, shown in zip(("en", "de"), ("ba de", CHINESE), sections(page, texts_of("pre")), strict=True):
        first, _, body = shown[0].partition("\n")
        assert first == "POST /v2/models/topic/infer"
        assert [each["data"] for each in json.loads(body)["inputs"]] == [[text], [language]]


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (320, "dark")])
def test_the_page_fits_its_window_in_light_and_in_the_dark(page: Page, width: int, scheme: str) -> None:
    page.view(width, 800, phone=width < 400, scheme=scheme)
    for task, text in (("names", SHORT), ("embeddings", "ki"), ("topic", "")):
        choose(page, task, ("de", "en", "tr", "auto"))
        ask(page, {f"text-{language}": text for language in ("de", "en", "tr", "auto")})
        assert page.evaluate("document.documentElement.scrollWidth") == width
    paper = page.screenshot()[0, 0]
    assert paper.min() > 0.9 if scheme == "light" else paper.max() < 0.2
