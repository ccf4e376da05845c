"""The OpenAPI description as an HTML page without scripts or external resources, so that it works offline."""

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

_STYLE = (
    "body{font:1rem/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "pre{overflow-x:auto;padding:.5rem;border:1px solid}code{font-size:.9em}th,td{text-align:left;padding-right:1rem}"
)


def render_page(description: Mapping[str, Any]) -> str:
    """Render an OpenAPI description as HTML."""
    title = escape(description["info"]["title"])
    entries = "".join(
        _operation(method, path, operation)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body><main>'
        f'<h1>{title}</h1><p>Open Inference Protocol, version 2. As data: <a href="openapi.json">openapi.json</a>. '
        f"Version {escape(description['info']['version'])}.</p>{entries}</main></body></html>"
    )


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    return (
        f"<section><h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation['summary'])} "
        f"{escape(operation.get('description', ''))}</p>{''.join(_request(operation))}{_responses(operation)}</section>"
    )


def _request(operation: Mapping[str, Any]) -> Iterator[str]:
    if "requestBody" not in operation:
        return
    body = operation["requestBody"]["content"]["application/json"]
    yield f"<p>Example:</p><pre>{escape(json.dumps(body['example'], indent=1))}</pre>"
    for name, parameter in body["schema"]["properties"]["parameters"]["properties"].items():
        allowed = ", ".join(f"{key} {json.dumps(value)}" for key, value in parameter.items() if key != "description")
        yield f"<p>Parameter <code>{escape(name)}</code> ({escape(allowed)}): {escape(parameter['description'])}.</p>"
    yield f"<details><summary>Schema</summary><pre>{escape(json.dumps(body['schema'], indent=1))}</pre></details>"


def _responses(operation: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><th scope=row>{status}</th><td>{escape(answer['description'])}</td></tr>"
        for status, answer in operation["responses"].items()
    )
    return f"<table>{rows}</table>"
