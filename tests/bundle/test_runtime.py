import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from lingraft.bundle.runtime import CUDA, Body, default_provider, installed_runtime
from lingraft.errors import MissingExtraError, ServingError


def install(site: Path, *names: str) -> None:
    """Leave what pip leaves of a package, for importlib.metadata to find."""
    for name in names:
        folder = site / f"{name.replace('-', '_')}-1.31.1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.31.1\n")


def test_two_runtimes_are_refused_since_they_overwrite_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bundle: Path
) -> None:
    install(tmp_path, "onnxruntime", "onnxruntime-gpu")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(ServingError, match="pip uninstall onnxruntime onnxruntime-gpu"):
        Body.open(bundle / "body.onnx")


def test_no_runtime_names_the_extra_that_brings_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(MissingExtraError, match=r"lingraft\[cpu\]"):
        installed_runtime()


def test_the_gpu_runtime_alone_means_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "onnxruntime-gpu")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert default_provider() == CUDA


def test_a_provider_that_cannot_be_used_is_not_replaced_by_another(bundle: Path) -> None:
    with pytest.raises(ServingError, match="cannot use TensorrtExecutionProvider"):
        Body.open(bundle / "body.onnx", "TensorrtExecutionProvider")


def test_a_missing_part_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx_ir", None)
    monkeypatch.delitem(sys.modules, "lingraft.export", raising=False)
    with pytest.raises(MissingExtraError, match=r"lingraft\[export\]"):
        importlib.import_module("lingraft.export")


def test_a_provider_that_fails_while_it_runs_is_not_replaced_by_the_cpu(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnxruntime.capi.onnxruntime_pybind11_state import EPFail

    class Failing:
        """A session of the runtime whose device has gone."""

        def __init__(self, real: object) -> None:
            self._real = real

        def __getattr__(self, name: str) -> object:
            return getattr(self._real, name)

        def run(self, *_: object) -> None:
            raise EPFail("CUDA failure 999")

    body = Body.open(bundle / "body.onnx")
    monkeypatch.setattr(body.session, "_sess", Failing(body.session._sess))
    monkeypatch.setattr(body.session, "_fallback_providers", ["CPUExecutionProvider"])
    embedded_BTD = np.zeros((1, 2, 32), np.float32)
    with pytest.raises(EPFail, match="CUDA failure 999"):
        body.run(embedded_BTD, np.ones((1, 2), np.bool_))
