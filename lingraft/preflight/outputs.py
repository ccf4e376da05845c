"""Whether results can be written where they are to go: a folder, and the place that steps share."""

import os
from collections.abc import Iterator
from pathlib import Path

from lingraft.artifacts.files import require_writable
from lingraft.artifacts.remote import uri_of
from lingraft.artifacts.storage import RemotePath
from lingraft.artifacts.sync import RESULTS_VARIABLE
from lingraft.errors import ArtifactError, LingraftError

_PROBE = ".lingraft-write-check"


def output_problems(out: Path | None) -> Iterator[str]:
    """Yield places of results that this process has no rights or credentials to write; the folder `out` is not made."""
    places = [str(out)] if out else []
    places += [shared] if (shared := os.environ.get(RESULTS_VARIABLE)) else []
    for place in places:
        try:
            uri = uri_of(place)
            if uri:
                _try_write_remote(RemotePath.of(uri))
            else:
                require_writable(Path(place))
        except LingraftError as error:
            yield str(error)


def _try_write_remote(place: RemotePath) -> None:
    """Write an object and remove it, as nothing else shows the rights of a bucket."""
    failures: tuple[type[Exception], ...] = (OSError, *place.failures)
    probe = f"{place.path.rstrip('/')}/{_PROBE}"
    try:
        place.system.pipe_file(probe, b"")
        place.system.rm_file(probe)
    except failures as error:
        raise ArtifactError(
            f"cannot write {place}: {error}. Check the URI, and the credentials in the environment."
        ) from error
