"""Files of Debian's packages, downloaded by apt-get and unpacked into a cache; nothing is installed."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from lingraft.artifacts.files import atomic_folder, cache_folder
from lingraft.artifacts.locks import folder_lock
from lingraft.errors import TextError

_ADVICE = {
    "apt-get": "If apt's package lists are missing or old, as in a fresh container, bring them first: "
    "sudo apt-get update (without sudo if you are root).",
    "dpkg-deb": "The download may be damaged, or the disk full. Try again.",
}


def package_folder(package: str, files: str, cache: str) -> Path:
    """Return a folder with what a package has in a folder of its own; it is downloaded once.

    The cache is $LINGRAFT_CACHE, or lingraft/ in the user's cache folder ($XDG_CACHE_HOME or ~/.cache).
    """
    try:
        place = cache_folder(cache)
        place.mkdir(parents=True, exist_ok=True)
        if found := _find_cached(place, package):
            return found
        with folder_lock(place / package, wait=True):
            return _find_cached(place, package) or _download(place, package, files)
    except (OSError, RuntimeError) as error:
        raise TextError(
            f"the cache for {package} cannot be used: {error}. Set LINGRAFT_CACHE to a folder that you may write to."
        ) from error


def _find_cached(cache: Path, package: str) -> Path | None:
    return next(iter(sorted(cache.glob(f"{package}_*"), reverse=True)), None)


def _download(cache: Path, package: str, files: str) -> Path:
    with tempfile.TemporaryDirectory(dir=cache, prefix=".") as temporary:
        work = Path(temporary)
        _run(["apt-get", "download", package], work, package)
        archive = _only(work, f"{package}_*.deb", package)
        _run(["dpkg-deb", "-x", archive.name, "unpacked"], work, package)
        wanted = _only(work, f"unpacked/{files}", package)
        folder = cache / archive.stem
        with atomic_folder(folder) as fresh:
            for part in wanted.iterdir():
                shutil.move(part, fresh)
    return folder


def _run(command: list[str], folder: Path, package: str) -> None:
    tool = command[0]
    if shutil.which(tool) is None:
        raise _failure(package, f"{tool} is not installed here.")
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if done.returncode:
        tail = " ".join(done.stderr.decode(errors="replace").splitlines()[-5:])
        raise _failure(package, f"{tool} failed with {done.returncode}: {tail}. {_ADVICE[tool]}")


def _only(folder: Path, pattern: str, package: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise _failure(package, f"the download holds {len(found)} of {pattern} instead of one.")
    return found[0]


def _failure(package: str, reason: str) -> TextError:
    return TextError(f"Debian package {package} cannot be brought: {reason}")
