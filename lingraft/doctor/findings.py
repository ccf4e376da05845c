"""What a look finds: that all is well, a gap, or what may be one."""

from collections.abc import Callable, Generator
from typing import NamedTuple, TypeVar

from kubernetes.client.rest import ApiException

from lingraft.steps.launch.watch_job import UNREACHABLE, is_absent

REFUSED = {401, 403}
_FAILURES = (ApiException, *UNREACHABLE)
Known = TypeVar("Known")


class Finding(NamedTuple):
    """What was looked at, and what is wrong with it."""

    what: str
    gap: str = ""
    """Empty if nothing is."""
    remedy: str = ""
    may_be_well: bool = False
    """Whether the gap is only a warning: from here nobody can tell."""

    @property
    def is_good(self) -> bool:
        """Whether nothing is to be done."""
        return not self.gap

    @property
    def is_lacking(self) -> bool:
        """Whether a run would fail, or wait for ever."""
        return not (self.is_good or self.may_be_well)


Findings = Generator[Finding, None, Known]
"""Findings, and what is known after them."""


def check_exists(what: str, read: Callable[[], object], remedy: str) -> Finding:
    """Whether something is there, by reading it."""
    try:
        read()
    except _FAILURES as error:
        return _failed_check(what, error, remedy)
    return Finding(what)


def check_reachable(what: str, remedy: str, looks: Findings[Known]) -> Findings[Known | None]:
    """Look, up to where something keeps us from it.

    Args:
        what: is looked at.
        remedy: where it is not there.
        looks: ask the API server, and find.
    """
    try:
        return (yield from looks)
    except _FAILURES as error:
        yield _failed_check(what, error, remedy)
        return None


def _failed_check(what: str, error: Exception, remedy: str) -> Finding:
    if is_absent(error):
        return Finding(what, "is not there", remedy)
    if not isinstance(error, ApiException):
        return Finding(what, f"cannot be reached: {error}", "Check KUBECONFIG and the network.")
    if error.status in REFUSED:
        return Finding(what, f"we may not look: {error.reason}", "Ask with the rights of an administrator.")
    return Finding(what, f"the API server answers {error.status} ({error.reason})", "Ask again; its log says why.")
