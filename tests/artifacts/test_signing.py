"""Signatures of artifacts, by keys as OpenSSL writes them, without a network."""

from pathlib import Path

import click.testing
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from model_signing._cli import main as model_signing_command
from typer.testing import CliRunner

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import MANIFEST, Kind
from lingraft.artifacts.signing import PASSWORD_VARIABLE, require_signed, sign
from lingraft.cli import app
from lingraft.errors import LingraftError, SignatureError

PEM, OPEN = serialization.Encoding.PEM, serialization.NoEncryption()


def write_keys(folder: Path, name: str, password: bytes | None = None) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    locked = serialization.BestAvailableEncryption(password) if password else OPEN
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, locked))
    public.write_bytes(key.public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo))
    return private, public


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    return write_keys(tmp_path, "ours")


@pytest.fixture
def made(tmp_path: Path) -> Path:
    with artifact.create(tmp_path / "made", Kind.TEXT) as draft:
        (draft.folder / "inner").mkdir()
        (draft.folder / "inner" / "train.jsonl").write_text("{}")
        draft.log("log.txt", "an hour")
        draft.facts = {"language": "de", "details": {"labels": ["a", "b"]}}
    return tmp_path / "made"


def lingraft(*arguments: object) -> str:
    return CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False).stdout


def refusal(folder: Path, signature: Path, public: Path) -> str:
    with pytest.raises(SignatureError) as caught:
        require_signed(Artifact.load(folder, Kind.TEXT), signature, public)
    return str(caught.value)


def test_what_was_signed_is_verified_wherever_it_lies(made: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    private, public = keys
    signed = lingraft("sign", made, "--key", private)
    assert signed == f"{tmp_path / 'made.sig'} signs text {Artifact.load(made, Kind.TEXT).fingerprint}\n"
    made.rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "MLmodel").write_text("what MLflow writes beside an artifact")
    told = lingraft("verify", tmp_path / "elsewhere", "--key", public, "--signature", tmp_path / "made.sig")
    assert told.startswith(f"{tmp_path / 'elsewhere'} is whole, signed by the key {public}\n")


def test_an_artifact_that_agrees_with_its_own_manifest_but_was_not_signed_so_is_refused(
    made: Path, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    private, public = keys
    sign(Artifact.load(made, Kind.TEXT), private, tmp_path / "signature")
    manifest = (made / MANIFEST).read_text()
    (made / MANIFEST).write_text(manifest.replace('"a"', '"c"'))
    assert f"by the key {public}: {MANIFEST} changed since. Fetch" in refusal(made, tmp_path / "signature", public)
    (made / MANIFEST).write_text(manifest)
    require_signed(Artifact.load(made, Kind.TEXT), tmp_path / "signature", public)


def test_another_key_and_what_is_no_key_or_signature_are_refused(
    made: Path, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    private, public = keys
    signature = tmp_path / "signature"
    sign(Artifact.load(made, Kind.TEXT), private, signature)
    _, other = write_keys(tmp_path, "theirs")
    assert "is not what" in refusal(made, signature, other)
    assert "sure this is a public key" in refusal(made, signature, private)
    for key, of in ((tmp_path / "absent", signature), (public, tmp_path / "absent"), (public, public)):
        refusal(made, of, key)
    edited = signature.read_text().replace('"signatures":[{"sig":"', '"signatures":[{"sig":"AAAA')
    assert edited != signature.read_text()
    signature.write_text(edited)
    refusal(made, signature, public)


def test_keys_that_cannot_sign_are_refused_and_leave_no_signature(
    made: Path, keys: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, public = keys
    locked, opens = write_keys(tmp_path, "locked", b"secret")
    edwards = tmp_path / "edwards.pem"
    edwards.write_bytes(
        ed25519.Ed25519PrivateKey.generate().private_bytes(PEM, serialization.PrivateFormat.PKCS8, OPEN)
    )
    for key in (public, locked, edwards, tmp_path / "absent"):
        with pytest.raises(SignatureError, match=rf"cannot be signed with {key}: .*\(openssl"):
            sign(Artifact.load(made, Kind.TEXT), key, tmp_path / "signature")
    assert not (tmp_path / "signature").exists()
    monkeypatch.setenv(PASSWORD_VARIABLE, "secret")
    sign(Artifact.load(made, Kind.TEXT), locked, tmp_path / "signature")
    require_signed(Artifact.load(made, Kind.TEXT), tmp_path / "signature", opens)


def test_a_signature_without_the_key_that_it_must_be_of_is_refused(made: Path, tmp_path: Path) -> None:
    with pytest.raises(LingraftError, match="Give --key"):
        lingraft("verify", made, "--signature", tmp_path / "signature")


def test_model_signing_s_own_command_verifies_our_signature(
    made: Path, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    private, public = keys
    sign(Artifact.load(made, Kind.TEXT), private, tmp_path / "made.sig")
    command = ["verify", "key", made, "--signature", tmp_path / "made.sig", "--public_key", public]
    done = click.testing.CliRunner().invoke(model_signing_command, [*map(str, command)])
    assert done.exit_code == 0, done.output
    assert "succeeded" in done.output
