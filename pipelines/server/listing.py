"""Objects of a server by their name, found with the server's own filter instead of paging."""

import json
from collections.abc import Callable
from typing import Any

import kfp_server_api as kfp

TAKEN = 409
"""HTTP status of a create request whose name is taken."""


def list_by_name(
    listing: Callable[..., Any], noun: str, name: str, key: str = "display_name", **where: str
) -> list[Any]:
    """Return the objects with a name, oldest first, at most 20.

    Args:
        listing: method of the API that lists objects.
        noun: field of its answer with the objects.
        name: name to search for.
        key: field that is compared with the name: `name` if display names are not unique.
        where: other arguments of the method, such as a namespace.
    """
    wanted = kfp.V2beta1Predicate(kfp.V2beta1PredicateOperation.EQUALS, key=key, string_value=name)
    of_name = json.dumps(kfp.ApiClient().sanitize_for_serialization(kfp.V2beta1Filter(predicates=[wanted])))
    given = {key: value for key, value in where.items() if value}
    return getattr(listing(**given, filter=of_name), noun) or []


def find_by_name(listing: Callable[..., Any], noun: str, name: str, key: str = "display_name", **where: str) -> Any:
    """Return the oldest object with a name; None if there is none. The arguments are those of `list_by_name`."""
    return next(iter(list_by_name(listing, noun, name, key, **where)), None)


def get_or_create(find: Callable[[], Any], make: Callable[[], Any]) -> Any:
    """Return an existing object, else create it; if another client creates it meanwhile, return that one.

    Raises:
        kfp.ApiException: the object can be neither found nor created.
    """
    try:
        return find() or make()
    except kfp.ApiException as error:
        theirs = find() if error.status == TAKEN else None
        if theirs is None:
            raise
        return theirs
