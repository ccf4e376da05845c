"""Who may ask: those whose header carries the whole token and nothing else."""

import pytest

from lingraft.serving.request_guard import is_authorized

TOKEN = "a token of sixteen characters or more"


@pytest.mark.parametrize("header", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"Bearer  {TOKEN} "])
def test_the_token_opens(header: str) -> None:
    assert is_authorized(header, TOKEN)


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x", "Bearer \xff"],
)
def test_anything_else_does_not(header: str) -> None:
    assert not is_authorized(header, TOKEN)


def test_without_a_token_everybody_may_ask() -> None:
    assert is_authorized("", None)
