"""What becomes of the hub's refusals and absence: each is told with its reason, or a mark that fits nothing else."""

import os
from pathlib import Path
from unittest import mock

import pytest

from lingraft.config.tasks import Task, TaskDataset
from lingraft.errors import LingraftError, TextError
from lingraft.huggingface.hub import locate_checkpoint
from lingraft.tasks.fingerprints import marks_of
from tests.fixtures import forked
from tests.huggingface.hub import COMMIT, GATED, LIMITED, XET, serving

REVIEWS, ABSENT = "makers/reviews", "makers/no-such-dataset"


def told() -> dict[str, str]:
    """What somebody learns whom the hub does not know."""
    answers = {}
    for source in ("makers/no-such-model", GATED, LIMITED, XET):
        try:
            answers[source] = str(locate_checkpoint(source))
        except LingraftError as error:
            answers[source] = str(error)
    return answers | {dataset: mark(dataset) for dataset in (REVIEWS, ABSENT)}


def marked_twice() -> list[str]:
    return [mark(REVIEWS) for _ in range(2)]


def mark(dataset: str) -> str:
    source = TaskDataset(kind="huggingface", dataset=dataset, split="test")
    task = Task(name="stars", kind="texts", train=source, dev=source, test=source)
    return marks_of(task, ("test",), "en")["test"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in (GATED, LIMITED, XET, "datasets/makers/reviews"):
        folder = tmp_path / "hub" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
    (tmp_path / "hub" / XET / "model.safetensors").write_bytes(bytes(100))
    return tmp_path / "hub"


def environment(endpoint: str, home: Path) -> dict[str, str]:
    """Of a process that has no token."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    return others | {"HF_ENDPOINT": endpoint, "HF_HOME": str(home)}


def test_who_is_not_known_is_told_why_an_id_cannot_be_had(root: Path, tmp_path: Path) -> None:
    with serving(root) as hub, mock.patch.dict(os.environ, environment(hub.endpoint, tmp_path / "home"), clear=True):
        answers = forked.start(told, log=tmp_path / "log").returns()
    absent = answers["makers/no-such-model"]
    assert (
        "there is neither such a folder nor such an id (status 401). Check the id, or, if it is private, set" in absent
    )
    assert not any(".." in answer for answer in answers.values())
    assert "it is gated. Accept its terms on its page, and set HF_TOKEN" in answers[GATED]
    assert "429 Too Many Requests" in answers[LIMITED]
    assert "HF_HUB_DISABLE_XET=1" in answers[XET]
    assert answers[REVIEWS] == f"{REVIEWS}  test {COMMIT}"
    assert COMMIT not in answers[ABSENT]


@pytest.mark.parametrize("dataset", ["a b", "a/b/c"])
def test_what_is_no_id_of_a_dataset_is_refused(dataset: str) -> None:
    with pytest.raises(TextError, match=f"'{dataset}' is neither a folder nor the id of a dataset"):
        mark(dataset)


def test_without_a_network_a_model_that_was_not_fetched_says_what_to_do(tmp_path: Path) -> None:
    with mock.patch.dict(os.environ, environment("http://127.0.0.1:9", tmp_path / "home"), clear=True):
        answers = forked.start(told, log=tmp_path / "log").returns()
    assert (
        "Connection refused. Check the id and the network, or fetch it elsewhere and give its folder" in answers[GATED]
    )
    offline = environment("http://127.0.0.1:9", tmp_path / "home") | {"HF_HUB_OFFLINE": "1"}
    with mock.patch.dict(os.environ, offline, clear=True):
        answers = forked.start(told, log=tmp_path / "log").returns()
    assert "unset the `HF_HUB_OFFLINE` environment variable. Check the id and the network, or fetch" in answers[GATED]


def test_a_dataset_has_a_mark_of_its_own_each_time_where_no_hub_answers(tmp_path: Path) -> None:
    with mock.patch.dict(os.environ, environment("http://127.0.0.1:9", tmp_path / "home"), clear=True):
        one, other = forked.start(marked_twice, log=tmp_path / "log").returns()
    assert one != other
