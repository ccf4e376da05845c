"""What reading a request costs the server, whatever is in it."""

import tracemalloc

import pytest

from lingraft.errors import RequestError
from lingraft.serving.requests import parse_json

MANY = 100_000


@pytest.mark.parametrize(
    "body",
    [
        b'{"inputs":[' + b"{}," * MANY + b"{}]}",
        b'{"inputs":[],"outputs":[' + b"{}," * MANY + b"{}]}",
        b'{"inputs":[{"name":"text","datatype":"BYTES","data":[],"shape":[' + b'"",' * MANY + b'""]}]}',
    ],
    ids=["inputs", "outputs", "shape"],
)
def test_a_request_of_many_wrong_parts_is_refused_before_each_is_told_of(body: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(RequestError, match="at most 16"):
            parse_json(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * len(body)
