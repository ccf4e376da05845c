"""Languages and bundles are loaded, refused and unloaded in a real server that is asked all the time."""

import os
import shutil
from pathlib import Path

import httpx
import pytest

from pipelines.endpoint import run_server
from tests.serving.asking import infer, inputs
from tests.serving.repository.asked import TASK, Crowd, said, texts

pytestmark = pytest.mark.integration
SWAPS, CLIENTS, ANSWERS = int(os.environ.get("SOAK_SWAPS", "2")), 4, 1000


def test_no_answer_fails_or_is_mixed_while_languages_and_bundles_come_and_go(
    started: Path, german: Path, turkish: Path, foreign: Path, tmp_path: Path
) -> None:
    for name, bundle in (("german", german), ("turkish", turkish), ("foreign", foreign)):
        shutil.copytree(bundle, tmp_path / name)
    settings = ("--no-detect", f"--repository={tmp_path}")
    with (
        run_server([started], settings=settings) as server,
        httpx.Client(base_url=server.url, timeout=60, trust_env=False) as client,
    ):

        def changed(verb: str, **parameters: str) -> httpx.Response:
            return client.post(f"/v2/repository/models/{TASK}/{verb}", json={"parameters": parameters})

        def asked(language: str) -> httpx.Response:
            return client.post(infer(TASK), json=inputs([language], text=texts(language)))

        crowd = Crowd(server.url, ("en", "de"))
        with crowd.asking(CLIENTS):
            rounds = 0
            while rounds < SWAPS or len(crowd.answers) < ANSWERS:
                assert changed("load", bundle="turkish", language="tr").is_success
                assert asked("tr").is_success
                assert changed("load", bundle="german", language="de").is_success
                refused = changed("load", bundle="foreign", language="de")
                assert (refused.status_code, "was made for body" in refused.text) == (400, True)
                answered = len(crowd.answers)
                while len(crowd.answers) < answered + 4 * CLIENTS:  # of this state, too
                    assert server.process.poll() is None
                assert changed("unload", language="tr").is_success
                gone = asked("tr")
                assert (gone.status_code, "speaks ['de', 'en']" in gone.text) == (400, True)
                assert changed("load", bundle="foreign").is_success  # another body
                assert changed("load").is_success  # as it was started
                rounds += 1
    versions = {
        language: {"started": said(started, language), "foreign": said(foreign, language)} for language in ("en", "de")
    }
    versions["de"]["german"] = said(german, "de")
    counted, mixed = crowd.seen(versions)
    assert crowd.failures == []
    assert mixed == 0
    assert counted["de", "german"]
    assert counted["de", "started"]
    print(f"answers {len(crowd.answers)} {counted}, failed {len(crowd.failures)}, mixed {mixed}")
