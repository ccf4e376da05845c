"""The page itself: who gets in, what it may load, and how it serves keyboards, screen readers, phones and darkness."""

from pathlib import Path

import httpx
import pytest

from pipelines.endpoint import run_server
from tests.reports.run.browser import Page, new_page
from tests.serving.playground.browsing import (
    SHORT,
    answered,
    ask,
    choose,
    infer,
    sections,
    texts_of,
)
from tests.serving.shared import TOKEN, SharedServer

pytestmark = pytest.mark.integration
INTRUDERS = (
    "document.body.append(Object.assign(new Image(), {src: 'http://localhost:9/'}))",
    "fetch('http://localhost:9/').catch(() => 0)",
    "document.body.setAttribute('style', 'color: red')",
    "document.body.setAttribute('onclick', 'run()')",
    "document.body.innerHTML = '<p>'",
)
WINDOWS = {"desktop": (1280, 900), "narrow": (320, 640)}
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
    node.checkVisibility() && !node.closest(":disabled") && written(node));
  const low = shown.filter(node => contrast(node) < 4.5).map(node => [node.outerHTML, contrast(node)]);
  return {seen: shown.length, low};
})()"""


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


def test_what_the_server_refuses_is_told_in_its_words_beside_the_other_answers(
    page: Page, server: SharedServer
) -> None:
    choose(page, "topic", ("de", "tr"))
    ask(page, {"text-de": "", "text-tr": "va"})
    assert sections(page, texts_of(".failed")) == [[infer(server, "topic", "de", text="")["error"]], []]
    assert page.evaluate("document.getElementById('status').innerText").startswith("1 of 2 answered")


def test_controls_and_landmarks_have_names(page: Page) -> None:
    choose(page, "reading", ("de", "tr"))
    ask(page, {"question-de": "ki?", "context-de": "ki lo", "question-tr": "va?", "context-tr": "va ze"})
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    named = [(each["role"]["value"], each.get("name", {}).get("value", "")) for each in nodes if not each["ignored"]]
    controls = {"textbox", "combobox", "checkbox", "button", "DisclosureTriangle", "region"}
    assert all(name for role, name in named if role in controls), named
    assert {("combobox", "Model"), ("group", "Languages"), ("group", "German"), ("textbox", "Question")} <= set(named)
    assert {("region", "German"), ("region", "Turkish")} <= set(named)
    assert {"banner", "main", "status", "alert"} <= {role for role, _ in named}


@pytest.mark.parametrize(("window", "scheme"), [("desktop", "light"), ("narrow", "dark")])
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
