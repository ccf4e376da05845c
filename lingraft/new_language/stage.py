"""One stage of the language lane."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lingraft.artifacts.artifact import Artifact, Kind
from lingraft.artifacts.cache import get_or_make
from lingraft.console import say, start_step


def run_stage(
    out: Path, kind: Kind, made_from: Mapping[str, Any], make: Callable[[Path], object], stage: str = ""
) -> Artifact:
    """Make an artifact at `out`, unless it was made there before from the same, and say which of the two it was.

    Args:
        out: folder of the artifact.
        kind: of the artifact.
        made_from: all that decides its content.
        make: writes it.
        stage: name of the stage as it was planned; the kind if empty.

    Raises:
        ProvenanceMismatchError: what is there was made from something else, or it is not known from what.
        ArtifactError: what is there is damaged or of another kind, or nothing can be written.
    """
    calls: list[object] = []
    with counted(stage or kind, calls):
        artifact = get_or_make(out, kind, made_from, lambda: calls.append(make(out)))
    say(f"{stage or kind}: {out} ({artifact.fingerprint[:12]}){'' if calls else ', as it was'}")
    return artifact


@contextlib.contextmanager
def counted(kind: str, calls: list[object]) -> Iterator[None]:
    """Say which of how many stages begins, and count it.

    Args:
        kind: as it was planned.
        calls: empty at the end if what the stage makes was there already.
    """
    headline, end = start_step(kind, kind)
    if headline:
        say(headline)
    yield
    end(not calls)
