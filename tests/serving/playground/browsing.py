"""What a person does with the playground, and what stands in its answers."""

import json
from typing import Any

import httpx

from tests.reports.run.browser import LIMIT_S, Page
from tests.serving.shared import TOKEN, SharedServer

REFUSED = "Failed to load resource: the server responded with a status of 401 (Unauthorized)"
# A character outside the first plane, a mark of direction, Arabic, something to run, and characters that join.
STRANGE = "🌍 \u200fأحمد <img src=x onerror=run()> ki\u200dlo"
SHORT = "🌍 \u200fأب <b>ki\u200dlo"


def choose(page: Page, task: str, languages: tuple[str, ...]) -> None:
    before = page.evaluate("document.getElementById('does').textContent")
    changed = f"model.value = {task!r}, model.dispatchEvent(new Event('change'))"
    if page.evaluate(f"model.value != {task!r} && ({changed})"):
        page.wait(f"document.getElementById('does').textContent != {before!r}")
    boxes = "document.querySelectorAll('#languages input')"
    page.evaluate(f"{boxes}.forEach(box => box.checked != {list(languages)}.includes(box.id.slice(5)) && box.click())")


def ask(page: Page, texts: dict[str, str]) -> None:
    fill = """Object.entries(%s).forEach(([id, text]) => {
      const field = document.getElementById(id);
      field.value = text;
      field.dispatchEvent(new Event("input"));
    })"""
    page.evaluate(fill % json.dumps(texts))
    page.evaluate("document.getElementById('ask').click()")
    answered(page)


def answered(page: Page) -> None:
    page.wait("document.getElementById('status').innerText.endsWith('answered.')")


def infer(server: SharedServer, model: str, language: str, **texts: str) -> dict[str, Any]:
    inputs = [
        {"name": name, "datatype": "BYTES", "shape": [1], "data": [value]}
        for name, value in (texts | {"language": language}).items()
    ]
    address, headers = f"{server.url}/v2/models/{model}/infer", {"authorization": f"Bearer {TOKEN}"}
    response = httpx.post(address, json={"inputs": inputs}, headers=headers, timeout=LIMIT_S, trust_env=False)
    return {each["name"]: each["data"] for each in response.json().get("outputs", [])} or response.json()


def sections(page: Page, what: str) -> list[Any]:
    found: list[Any] = page.evaluate(f"[...document.querySelectorAll('.answer')].map(section => {what})")
    return found


def texts_of(selector: str) -> str:
    return f"[...section.querySelectorAll({selector!r})].map(each => each.textContent)"
