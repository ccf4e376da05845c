"""Imports from a hub, in a process whose environment names it: the hub's library reads that as it is imported."""

import json
import time
from collections.abc import Mapping
from pathlib import Path

ONLINE, OFFLINE = "online.json", "offline.json"
Wanted = Mapping[str, tuple[str, str | None]]
"""Names of imports, with id and revision."""


def ask(wanted: Wanted, later: Wanted, hub_is_gone: Path, out: Path) -> None:
    """Import what is wanted, then, as soon as a file says that the hub is gone, what is wanted later.

    Answers by name are written beside the outputs: the primary's fingerprint, or its error.
    """
    _import_all(wanted, out, ONLINE)
    while not hub_is_gone.exists():
        time.sleep(0.01)
    import huggingface_hub

    huggingface_hub.close_session()  # a connection that is open already would still be answered
    _import_all(later, out, OFFLINE)


def _import_all(wanted: Wanted, out: Path, answers: str) -> None:
    from lingraft.errors import LingraftError
    from lingraft.huggingface.importing import import_hf

    found = {}
    for name, (source, revision) in wanted.items():
        try:
            found[name] = import_hf(source, out / name, "en", revision).primary.fingerprint
        except LingraftError as error:
            found[name] = f"{type(error).__name__}: {error}"
    unfinished = out / f"{answers}.new"
    unfinished.write_text(json.dumps(found), encoding="utf-8")
    unfinished.rename(out / answers)
