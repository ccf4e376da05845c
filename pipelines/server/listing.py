"""What a server has under a name: found by its own filter, so that nothing is paged through."""

import json
from collections.abc import Callable
from typing import Any

import kfp_server_api as kfp

TAKEN = 409
"""Answer to a name that somebody has taken, perhaps a moment ago."""


def list_by_name(
    listing: Callable[..., Any], noun: str, name: str, key: str = "display_name", **where: str
) -> list[Any]:
    """What a listing has under a name, oldest first; a server gives at most 20 at once.

    Args:
        listing: method of the API that lists.
        noun: field of its answer.
        name: the name.
        key: field that is the name: `name` where others may have the same display name.
        where: what else the method wants, such as a namespace.
    """
    wanted = kfp.V2beta1Predicate(kfp.V2beta1PredicateOperation.EQUALS, key=key, string_value=name)
    of_name = json.dumps(kfp.ApiClient().sanitize_for_serialization(kfp.V2beta1Filter(predicates=[wanted])))
    given = {key: value for key, value in where.items() if value}
    return getattr(listing(**given, filter=of_name), noun) or []


def find_by_name(listing: Callable[..., Any], noun: str, name: str, key: str = "display_name", **where: str) -> Any:
    """The first that a listing has under a name; None if it has none. For the arguments see `listed`."""
    return next(iter(list_by_name(listing, noun, name, key, **where)), None)


def get_or_create(find: Callable[[], Any], make: Callable[[], Any]) -> Any:
    """What is there, else what is made; if somebody else makes it meanwhile, theirs.

    Raises:
        kfp.ApiException: it can be neither found nor made.
    """
    try:
        return find() or make()
    except kfp.ApiException as error:
        theirs = find() if error.status == TAKEN else None
        if theirs is None:
            raise
        return theirs
