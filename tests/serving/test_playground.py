"""The playground as a browser shows it: a real server, a real page, and a person who has the keyboard alone."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from lingraft.serving.ask import Running, running
from lingraft.serving.settings import TOKEN_VARIABLE
from tests.report.browser import CONTROL, LIMIT_S, Page, new_page, running_chromium

TOKEN = "tell-me-the-answers"
REFUSED = "Failed to load resource: the server responded with a status of 401 (Unauthorized)"
WINDOWS = {"desktop": (1280, 900), "narrow": (320, 640)}
# A character outside the first plane, a mark of direction, Arabic, something to run, and characters that join.
STRANGE = "🌍 \u200fأحمد <img src=x onerror=run()> ki\u200dlo"
SHORT = "🌍 \u200fأب <b>ki\u200dlo"
INTRUDERS = (
    "document.body.append(Object.assign(new Image(), {src: 'http://localhost:9/'}))",
    "fetch('http://localhost:9/').catch(() => 0)",
    "document.body.setAttribute('style', 'color: red')",
    "document.body.setAttribute('onclick', 'run()')",
    "document.body.innerHTML = '<p>'",
)
FOCUSABLE = "select, input, textarea, button, summary, [tabindex='0']"
FOCUSED = "document.activeElement.id || document.activeElement.ariaLabel || document.activeElement.innerText"
TITLE = "section.querySelector('h2').textContent"
BARS = """[...section.querySelectorAll(".bar")].map(bar =>
  parseFloat(getComputedStyle(bar, "::before").width) / bar.clientWidth)"""
LOW_CONTRAST = """(() => {
  const pixel = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
  const rgba = color => {
    pixel.clearRect(0, 0, 1, 1);
    pixel.fillStyle = color;
    pixel.fillRect(0, 0, 1, 1);
    return [...pixel.getImageData(0, 0, 1, 1).data];
  };
  const over = ([r, g, b, a], below) => [r, g, b].map((value, i) => (value * a + below[i] * (255 - a)) / 255);
  const ground = node =>
    node ? over(rgba(getComputedStyle(node).backgroundColor), ground(node.parentElement)) : [255, 255, 255];
  const linear = value => value <= .04045 ? value / 12.92 : ((value + .055) / 1.055) ** 2.4;
  const light = color => color.reduce((sum, value, i) => sum + linear(value / 255) * [.2126, .7152, .0722][i], 0);
  const contrast = node => {
    const below = ground(node), own = over(rgba(getComputedStyle(node).color), below);
    const [low, high] = [light(below), light(own)].sort((one, other) => one - other);
    return (high + .05) / (low + .05);
  };
  const written = node => node.value || [...node.childNodes].some(child => child.nodeType == 3 && child.data.trim());
  const shown = [...document.querySelectorAll("body *")].filter(node =>
    node.checkVisibility() && !node.closest(".unseen, :disabled") && written(node));
  const low = shown.filter(node => contrast(node) < 4.5).map(node => [node.outerHTML, contrast(node)]);
  return {seen: shown.length, low};
})()"""

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def server(bundles: list[Path]) -> Iterator[Running]:
    """All kinds of models, for those who have the token, with detection of languages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TOKEN_VARIABLE, TOKEN)
        with running(bundles, settings=()) as found:
            yield found


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A browser's DevTools port."""
    with running_chromium(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
def locked(server: Running, port: int) -> Iterator[Page]:
    """The page as it is before a person has given the token."""
    with new_page(port) as page:
        page.visit(f"{server.url}/ui")
        page.wait("document.activeElement.id == 'token'")
        yield page


@pytest.fixture
def page(locked: Page) -> Page:
    """The page with its models."""
    locked.write(TOKEN)
    locked.press("Enter")
    locked.wait("document.activeElement.id == 'task'")
    return locked


def choose(page: Page, task: str, languages: tuple[str, ...]) -> None:
    page.evaluate(f"task.value != {task!r} && (task.value = {task!r}, task.dispatchEvent(new Event('change')))")
    page.wait(f"document.querySelector('#facts dd').textContent == {task!r}")
    boxes = "document.querySelectorAll('#languages input')"
    page.evaluate(f"{boxes}.forEach(box => box.checked != {list(languages)}.includes(box.id.slice(5)) && box.click())")


def ask(page: Page, texts: dict[str, str]) -> None:
    """Write texts, by the ids of their fields, and wait for all answers."""
    fill = """Object.entries(%s).forEach(([id, text]) => {
      const field = document.getElementById(id);
      field.value = text;
      field.dispatchEvent(new Event("input"));
    })"""
    page.evaluate(fill % json.dumps(texts))
    page.evaluate("document.getElementById('ask').click()")
    answered(page)


def answered(page: Page) -> None:
    page.wait("document.getElementById('status').innerText.includes('answered in')")


def infer(server: Running, model: str, language: str, **texts: str) -> dict[str, Any]:
    """What the server says to a client that is no browser: data by output."""
    inputs = [
        {"name": name, "datatype": "BYTES", "shape": [1], "data": [value]}
        for name, value in (texts | {"language": language}).items()
    ]
    address, headers = f"{server.url}/v2/models/{model}/infer", {"authorization": f"Bearer {TOKEN}"}
    response = httpx.post(address, json={"inputs": inputs}, headers=headers, timeout=LIMIT_S, trust_env=False)
    return {each["name"]: each["data"] for each in response.json().get("outputs", [])} or response.json()


def sections(page: Page, what: str) -> list[Any]:
    """Something of each answer; `what` is JavaScript about `section`."""
    found: list[Any] = page.evaluate(f"[...document.querySelectorAll('.answer')].map(section => {what})")
    return found


def texts_of(selector: str) -> str:
    return f"[...section.querySelectorAll({selector!r})].map(each => each.textContent)"


def test_the_token_is_asked_for_in_the_server_s_words_and_kept_in_memory_alone(locked: Page, server: Running) -> None:
    refusal = httpx.get(f"{server.url}/v2/models", trust_env=False).json()["error"]
    for given, shown in (("wrong", False), (TOKEN, True)):
        assert locked.evaluate("document.getElementById('trouble').innerText") == refusal
        assert not locked.evaluate("document.getElementById('question').checkVisibility()")
        locked.write(given)
        locked.press("Enter")
        locked.wait("document.activeElement.id == " + ("'task'" if shown else "'token' && trouble.innerText != ''"))
    assert not locked.evaluate("document.getElementById('access').checkVisibility() || trouble.innerText")
    assert locked.evaluate("[localStorage.length, sessionStorage.length, document.cookie, token.value]") == [
        0,
        0,
        "",
        "",
    ]
    locked.visit(f"{server.url}/ui")
    locked.wait("document.activeElement.id == 'token'")


def test_the_page_asks_nothing_of_any_other_server_and_has_no_complaint(page: Page, server: Running) -> None:
    choose(page, "topic", ("de",))
    ask(page, {"text-de": "ki lo"})
    assert all(address.startswith(server.url) for address in page.requests)
    assert page.complaints == [REFUSED]


def test_the_page_refuses_what_would_come_from_elsewhere_or_be_run_from_text(page: Page) -> None:
    for intruder in INTRUDERS:
        before = len(page.complaints)
        page.evaluate(f"setTimeout(() => {{ {intruder} }})")
        page.wait_for(lambda before=before: len(page.complaints) > before, intruder)
        said = page.complaints[before:]
        assert all("Content Security Policy" in each or "Trusted" in each for each in said), said


def test_labels_come_best_first_with_bars_as_long_as_their_probabilities(page: Page, server: Running) -> None:
    choose(page, "topic", ("de", "tr"))
    ask(page, {"text-de": "ki lo mu", "text-tr": "va ze"})
    names = ["garden", "harbour", "kitchen"]
    for place, (language, text) in enumerate({"de": "ki lo mu", "tr": "va ze"}.items()):
        told = dict(zip(names, infer(server, "topic", language, text=text)["probabilities"], strict=True))
        best_first = sorted(names, key=told.__getitem__, reverse=True)
        assert sections(page, texts_of(".name"))[place] == best_first
        assert sections(page, BARS)[place] == pytest.approx([told[name] for name in best_first], abs=0.01)
        assert sections(page, texts_of(".number"))[place] == [f"{told[name]:.1%}" for name in best_first]
    german, turkish = sections(page, TITLE)
    assert german.startswith("German ")
    assert turkish.startswith("Turkish ")
    assert german.endswith(" ms")


def test_entities_are_marked_where_they_stand_and_a_text_is_shown_as_it_was_written(
    page: Page, server: Running
) -> None:
    choose(page, "names", ("de", "tr"))
    ask(page, {"text-de": SHORT, "text-tr": SHORT})
    for place, language in enumerate(("de", "tr")):
        told = infer(server, "names", language, text=SHORT)
        assert told["entity"] == [SHORT[start:end] for start, end in zip(told["start"], told["end"], strict=True)]
        assert told["entity"]
        assert sections(page, texts_of("mark"))[place] == told["entity"]
        assert sections(page, texts_of(".told .kind"))[place] == told["kind"]
    bare = "(copy => { copy.querySelectorAll('.kind').forEach(kind => kind.remove()); return copy.textContent })"
    assert sections(page, f"{bare}(section.querySelector('.told').cloneNode(true))") == [SHORT, SHORT]
    assert page.evaluate("document.querySelectorAll('.answer b, .answer :is(bdi:empty)').length") == 0


def test_answers_are_marked_in_contexts_of_any_script_and_markup_in_them_is_text(page: Page, server: Running) -> None:
    page.evaluate("window.run = () => { window.ran = true }")
    choose(page, "reading", ("de", "en", "tr"))
    languages, starts = ("de", "en", "tr"), []
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
    assert page.evaluate("document.querySelectorAll('.answer img').length || window.ran") is None
    assert page.complaints == [REFUSED]


def test_a_mask_is_put_in_by_a_button_and_what_fills_it_is_shown(page: Page, server: Running) -> None:
    choose(page, "fill-mask", ("de",))
    page.evaluate("document.getElementById('text-de').focus()")
    page.write("🌍ki ")
    page.press("Tab")
    page.press(" ")
    assert page.evaluate(FOCUSED) == "text-de"
    page.write(" lo")
    page.press("Enter", CONTROL)
    answered(page)
    told = infer(server, "fill-mask", "de", text="🌍ki <mask> lo")
    assert sections(page, texts_of(".name bdi:first-child")) == [told["piece"]]
    assert sections(page, "section.querySelector('.told').textContent") == [f"🌍ki {told['piece'][0]} lo"]


def test_texts_of_several_languages_are_compared_by_the_cosine_of_their_embeddings(page: Page, server: Running) -> None:
    texts = {"de": "ki lo", "en": "mu na pe", "tr": "va"}
    choose(page, "embeddings", tuple(texts))
    ask(page, {f"text-{language}": text for language, text in texts.items()})
    vectors = np.array([infer(server, "embeddings", *pair[:1], text=pair[1])["embedding"] for pair in texts.items()])
    shown = page.evaluate("[...document.querySelectorAll('tbody td')].map(cell => parseFloat(cell.innerText))")
    np.testing.assert_allclose(np.reshape(shown, (3, 3)), vectors @ vectors.T, atol=1.1e-3)
    assert page.evaluate("[...document.querySelectorAll('tbody th')].map(head => head.innerText)") == [
        "German",
        "English",
        "Turkish",
    ]


def test_two_texts_are_written_once_for_all_languages(page: Page, server: Running) -> None:
    choose(page, "inference", ("de", "tr"))
    page.evaluate("document.getElementById('text-de').focus()")
    page.write("ki lo")
    page.evaluate("document.getElementById('same').click()")
    assert page.evaluate("document.getElementById('text-all').value") == "ki lo"
    ask(page, {"text_pair-all": "va"})
    for place, language in enumerate(("de", "tr")):
        told = infer(server, "inference", language, text="ki lo", text_pair="va")
        assert sections(page, texts_of(".name"))[place][0] == told["label"][0]


def test_what_the_server_refuses_is_told_in_its_words_beside_the_other_answers(page: Page, server: Running) -> None:
    choose(page, "topic", ("de", "tr"))
    ask(page, {"text-de": "", "text-tr": "va"})
    assert sections(page, texts_of(".failed")) == [[infer(server, "topic", "de", text="")["error"]], []]
    assert page.evaluate("document.getElementById('status').innerText").startswith("1 of 2 answered")


def test_a_language_is_found_out_and_named_with_how_sure_that_is(page: Page, server: Running) -> None:
    text = "The weather is nice"
    choose(page, "embeddings", ("auto",))
    ask(page, {"text-auto": text})
    told = infer(server, "embeddings", "auto", text=text)
    assert told["language"] == ["en"]
    (title,) = sections(page, TITLE)
    assert title.startswith(f"English, detected, {told['language_confidence'][0]:.1%} sure")


def test_everything_is_reached_named_and_done_with_the_keyboard(page: Page) -> None:
    page.press("ArrowDown")
    page.wait("document.querySelector('#facts dd').textContent == 'inference'")
    for language in ("de", "en", "tr"):
        page.press("Tab")
        assert page.evaluate(FOCUSED) == f"pick-{language}"
        page.press(" ")
    for target in ("pick-auto", "same", "truncate", "text-tr"):
        page.press("Tab")
        assert page.evaluate(FOCUSED) == target
    page.write("ki")
    page.press("Tab")
    page.write("lo")
    page.press("Tab")
    page.press("Enter")
    answered(page)
    assert page.evaluate("document.querySelector('.answer').ariaLabel") == "Turkish"
    wanted = page.evaluate(
        f"[...document.querySelectorAll({FOCUSABLE!r})].filter(each => each.checkVisibility())"
        ".map(each => each.id || each.ariaLabel || each.innerText)"
    )
    page.evaluate("document.getElementById('task').focus()")
    visited = []
    for _ in wanted:
        visited.append(page.evaluate(FOCUSED))
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.press("Tab")
    assert visited == wanted


def test_controls_and_landmarks_have_names_and_what_happens_is_announced(page: Page) -> None:
    choose(page, "reading", ("de", "tr"))
    ask(page, {"question-de": "ki?", "context-de": "ki lo", "question-tr": "va?", "context-tr": "va ze"})
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    named = [(each["role"]["value"], each.get("name", {}).get("value", "")) for each in nodes if not each["ignored"]]
    controls = {"textbox", "combobox", "checkbox", "button", "DisclosureTriangle", "region"}
    assert all(name for role, name in named if role in controls), named
    assert {("combobox", "Task"), ("group", "Languages"), ("group", "German"), ("textbox", "Question")} <= set(named)
    assert {("region", "German"), ("region", "Turkish")} <= set(named)
    assert {"banner", "main", "status", "alert"} <= {role for role, _ in named}
    said = page.evaluate("document.getElementById('status').textContent")
    assert "2 of 2 answered" in said
    for title, answer in zip(("German", "Turkish"), sections(page, texts_of(".name")), strict=True):
        assert f"{title}: {answer[0]}, " in said


@pytest.mark.parametrize(("window", "scheme"), list(itertools.product(WINDOWS, ("light", "dark"))))
def test_the_page_fits_its_window_and_is_read_easily(page: Page, window: str, scheme: str) -> None:
    width, height = WINDOWS[window]
    page.view(width, height, phone=window == "narrow", scheme=scheme)
    for task, texts in (("names", {"text": SHORT}), ("embeddings", {"text": "ki"}), ("topic", {"text": ""})):
        choose(page, task, ("de", "en", "tr", "auto"))
        ask(page, {f"{key}-{language}": text for key, text in texts.items() for language in ("de", "en", "tr", "auto")})
        assert page.evaluate("document.documentElement.scrollWidth") == width
        found = page.evaluate(LOW_CONTRAST)
        assert found["seen"] > 20
        assert not found["low"]
    paper = page.screenshot()[0, 0]
    assert paper.min() > 0.9 if scheme == "light" else paper.max() < 0.2
