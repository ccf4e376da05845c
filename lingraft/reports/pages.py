"""HTML pages from templates: each opens from disk, needs no network, and shows whatever is filled in as text."""

import base64
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from lingraft.errors import MissingExtraError


def render_page(
    package: str,
    template: str,
    context: Mapping[str, Any],
    filters: Mapping[str, Callable[..., Any]] = MappingProxyType({}),
) -> str:
    """Fill in a template that lies beside the code of a package.

    Args:
        package: name of the package.
        template: file name in the package's folder.
        context: values by the names that the template has for them.
        filters: further filters by name, beside `base64`.

    Raises:
        MissingExtraError: jinja2 is not installed.
    """
    try:
        import jinja2
    except ModuleNotFoundError as error:
        raise MissingExtraError("jinja2", "report") from error
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package, ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"base64": lambda content: base64.b64encode(content).decode(), **filters}
    return environment.get_template(template).render(context)
