"""ONNX Runtime: one body that any language's table is given to, at each call.

Legend: B batch, T tokens, V vocabulary, D width, C classes.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lingraft.errors import MissingExtraError, ServingError
from lingraft.tasks.pairs import pad

TOKENS, VISIBLE, TABLE, LOGITS = "tokens_BT", "visible_BT", "table_VD", "logits_BC"
CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
_EXTRAS = {"onnxruntime": "cpu", "onnxruntime-gpu": "gpu"}
_QUOTA_FILE = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True)
class Body:
    """A finetuned body and its head, without a language."""

    session: Any
    """An onnxruntime.InferenceSession."""

    @classmethod
    def open(cls, path: Path, provider: str = CPU) -> Self:
        """Open an exported body.

        Raises:
            MissingExtraError: ONNX Runtime is not installed.
            ServingError: two ONNX Runtimes are installed, or the provider cannot be used.
        """
        installed_runtime()
        import onnxruntime

        if provider not in onnxruntime.get_available_providers():
            raise _unusable(provider, onnxruntime.get_available_providers())
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = usable_cpus()
        session = onnxruntime.InferenceSession(path, options, [provider])
        # ONNX Runtime falls back to the CPU without an error.
        if session.get_providers()[0] != provider:
            raise _unusable(provider, session.get_providers())
        return cls(session)

    def hold(self, table_VD: NDArray[np.float32]) -> Any:
        """A language's table as an onnxruntime.OrtValue, for `logits`."""
        from onnxruntime import OrtValue

        on_gpu = self.session.get_providers()[0] == CUDA
        return OrtValue.ortvalue_from_numpy(table_VD, "cuda" if on_gpu else "cpu", 0)

    def logits(self, rows: Sequence[Sequence[int]], pad_id: int, table: Any) -> NDArray[np.float32]:
        """Logits (B, C) of token ids, padded here to the longest row, with a table from `hold`."""
        from onnxruntime import OrtValue

        tokens_BT, visible_BT = pad(rows, pad_id)
        given = {
            TOKENS: OrtValue.ortvalue_from_numpy(tokens_BT.numpy()),
            VISIBLE: OrtValue.ortvalue_from_numpy(visible_BT.numpy()),
            TABLE: table,
        }
        (logits_BC,) = self.session.run_with_ort_values([LOGITS], given)
        found: NDArray[np.float32] = logits_BC.numpy()
        return found


def served_provider() -> str:
    """Execution provider that the installed ONNX Runtime is there for.

    Raises:
        MissingExtraError: none is installed.
        ServingError: both are.
    """
    return CUDA if installed_runtime() == "onnxruntime-gpu" else CPU


def installed_runtime() -> str:
    """The one distribution of ONNX Runtime that is installed.

    Raises:
        MissingExtraError: none is.
        ServingError: both are; they overwrite each other's files, so that neither can be trusted.
    """
    found = [name for name in _EXTRAS if any(True for _ in metadata.distributions(name=name))]
    if not found:
        raise MissingExtraError("onnxruntime", "cpu")
    if len(found) > 1:
        raise ServingError(
            f"{' and '.join(found)} are both installed, and overwrite each other's files. Remove both "
            f"(pip uninstall {' '.join(found)}), then install one: pip install 'lingraft[cpu]' or 'lingraft[gpu]'."
        )
    return found[0]


def usable_cpus(quota_file: Path = _QUOTA_FILE) -> int:
    """CPUs that this process may use: by its affinity, and by its container's quota (cgroup v2)."""
    cpus = len(os.sched_getaffinity(0))
    quota_us, _, period_us = quota_file.read_text().partition(" ") if quota_file.is_file() else ("max", "", "")
    return cpus if quota_us == "max" else max(1, min(cpus, int(quota_us) // int(period_us)))


def _unusable(provider: str, providers: Sequence[str]) -> ServingError:
    return ServingError(
        f"ONNX Runtime cannot use {provider}, only {list(providers)}. Install its driver and libraries (CUDA and "
        "cuDNN for lingraft[gpu]), or the CPU's runtime: pip install 'lingraft[cpu]'."
    )
