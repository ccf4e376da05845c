"""Settings of the endpoint; each field is a flag of the command line."""

import os
from pathlib import Path

from pydantic import Field, NonNegativeFloat, PositiveInt

from lingraft.bundle.format import Precision
from lingraft.config.section import Section
from lingraft.errors import ServingError

TOKEN_VARIABLE = "LINGRAFT_TOKEN"
_SHORTEST_TOKEN = 16


class ServingSettings(Section):
    """Addresses, batching and limits of the endpoint; limits hold for REST and gRPC together."""

    host: str = Field("0.0.0.0", description="Address to listen on; all of them by default.")
    port: int = Field(8080, description="Port of REST.", ge=1, lt=2**16)
    grpc_port: int = Field(8081, description="Port of gRPC; 0: there is none.", ge=0, lt=2**16)
    precision: Precision | None = Field(
        None, description="fp32, fp16 or int8: of the bodies; if absent, fp16 on a GPU where there is one, else fp32."
    )
    batch_texts: PositiveInt = Field(32, description="Texts that go through a body at once, at most.")
    batch_tokens: PositiveInt | None = Field(
        None,
        description="Tokens that go through a body at once, padding included, at most; one text may have more. If "
        "absent, 512 for each core, and 16,384 on a GPU.",
    )
    wait_ms: NonNegativeFloat = Field(
        0.0,
        description="How long a text may wait for others to share its batch while the body is idle; while the body "
        "is busy, texts gather anyway.",
    )
    waiting_texts: PositiveInt = Field(2048, description="Texts that may wait for one body; more are refused (429).")
    texts: PositiveInt = Field(2048, description="Texts of one request, at most.")
    characters: PositiveInt = Field(20_000, description="Characters of one text, at most.")
    body_bytes: PositiveInt = Field(8 * 2**20, description="Bytes of one request, at most.")
    unknown_limit: float = Field(
        0.3,
        ge=0,
        le=1,
        description="Share of a text's characters that may be unknown; an answer to one above it carries a warning.",
    )
    drain_s: PositiveInt = Field(30, description="Seconds that accepted requests may take to finish after SIGTERM.")
    repository: Path | None = Field(
        None,
        description="Folder of bundles that clients may load (POST /v2/repository/models/NAME/load); if absent, "
        "they may load nothing.",
    )
    detect: bool = Field(True, description="Whether the language 'auto' may be asked for; takes 95 MB of memory.")


def read_token() -> str | None:
    """Read the bearer token that requests must carry from the environment; None if it is not set.

    Raises:
        ServingError: the token is too short to be safe, or not printable ASCII.
    """
    token = os.environ.get(TOKEN_VARIABLE)
    if token is not None and (len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable()):
        raise ServingError(
            f"{TOKEN_VARIABLE} has {len(token)} characters; it must have {_SHORTEST_TOKEN} or more, printable and "
            "ASCII. Make one with `openssl rand -hex 32`, or unset it to ask for none."
        )
    return token
