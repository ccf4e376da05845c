"""Languages that come, change and go in what is served."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import MANIFEST, Kind
from lingraft.bundle.format import self_test_part
from lingraft.errors import ServingError
from lingraft.serving.bundle import Bundle, open_language
from lingraft.serving.served_bundles import ServedBundles
from tests.workshop import copied


def test_a_language_that_comes_shares_what_another_task_has_open(bundles: list[Path]) -> None:
    served = ServedBundles.load(bundles[:1])
    open_already = served["topic"].languages["de"]
    brought = open_language(Artifact.load(bundles[1], Kind.BUNDLE), "de", served.opened_files)
    assert brought.table is open_already.table
    assert brought.tokenizer is open_already.tokenizer
    assert brought.self_test is not open_already.self_test


def test_a_language_that_misses_its_golden_answers_is_refused_and_the_old_one_stays(bundle: Path) -> None:
    whole = Bundle.load(bundle)
    served = ServedBundles([whole])
    wrong = replace(whole.languages["de"], self_test=whole.languages["tr"].self_test)
    with pytest.raises(ServingError, match="golden"):
        served.put_language("topic", "de", wrong)
    assert served["topic"] is whole


def test_a_bundle_that_misses_its_golden_answers_is_not_served(bundle: Path, tmp_path: Path) -> None:
    """Its hashes hold: what computes otherwise on this machine is found by nothing else."""
    wrong = copied(bundle, tmp_path / "bundle")
    german, turkish = (f"{self_test_part(language)}.safetensors" for language in ("de", "tr"))
    shutil.copyfile(wrong / turkish, wrong / german)
    manifest = json.loads((wrong / MANIFEST).read_bytes())
    manifest["files"][german] = manifest["files"][turkish]
    (wrong / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(ServingError, match=r"'topic' in fp32 does not give its golden answers.* and is de \d"):
        ServedBundles.load([wrong])


def test_what_cannot_be_told_apart_is_refused(bundle: Path) -> None:
    whole = Bundle.load(bundle)
    with pytest.raises(ServingError, match="two bundles are named 'topic'"):
        ServedBundles([whole, whole])
    with pytest.raises(ServingError, match="no bundle to serve"):
        ServedBundles([])
