"""What `lingraft serve` takes for bundles."""

from pathlib import Path

from lingraft.artifacts.manifest import MANIFEST
from lingraft.serving.command import bundles_in


def test_a_folder_of_bundles_is_all_of_them_and_a_bundle_is_itself(tmp_path: Path) -> None:
    for name in ("retrieval", "help-topic"):
        (tmp_path / name).mkdir()
        (tmp_path / name / MANIFEST).touch()
    assert bundles_in(tmp_path) == [tmp_path / "help-topic", tmp_path / "retrieval"]
    assert bundles_in(tmp_path / "retrieval") == [tmp_path / "retrieval"]
    assert bundles_in(tmp_path / "none") == [tmp_path / "none"]
