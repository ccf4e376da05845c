"""Signatures of artifacts by an elliptic-curve key, in the format of OpenSSF model signing.

A fingerprint shows that an artifact is the one that somebody names; a signature shows who made it, where no registry
is at hand to ask. Both work offline. Other tools verify the same files: `model_signing verify key`.
"""

import os
import re
import tempfile
from pathlib import Path
from typing import Any

from lingraft.artifacts.artifact import MLFLOW_FILES, Artifact
from lingraft.artifacts.files import write_text
from lingraft.errors import MissingExtraError, SignatureError

PASSWORD_VARIABLE = "LINGRAFT_KEY_PASSWORD"
"""Environment variable with the password of an encrypted private key."""


def signature_beside(folder: Path) -> Path:
    """Return the default file of an artifact's signature, which is beside its folder."""
    folder = folder.resolve()
    return folder.with_name(f"{folder.name}.sig")


def sign(artifact: Artifact, private_key: Path, out: Path) -> None:
    """Sign an artifact: every file of it, the manifest included.

    Args:
        private_key: PEM file of an elliptic-curve key (P-256, P-384 or P-521); `LINGRAFT_KEY_PASSWORD` decrypts it.
        out: file of the signature; one that is there is replaced.

    Raises:
        SignatureError: the key cannot be read, or is of another kind.
        ArtifactError: the signature cannot be written.
        MissingExtraError: the extra 'signing' is not installed.
    """
    try:
        from model_signing import hashing, signing
    except ModuleNotFoundError as error:
        raise MissingExtraError("model-signing", "signing") from error
    given = os.environ.get(PASSWORD_VARIABLE)
    # model-signing declares a str, and hands it to cryptography, which takes bytes alone.
    password: Any = given.encode() if given else None
    files = hashing.Config().set_ignored_paths(paths=MLFLOW_FILES, ignore_git_paths=False)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "signature"
        try:
            signer = signing.Config().use_elliptic_key_signer(private_key=private_key, password=password)
            signer.set_hashing_config(files).sign(artifact.folder, made)
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise SignatureError(
                f"{artifact.folder} cannot be signed with {private_key}: {error}. Give the PEM file of an "
                "elliptic-curve private key (openssl ecparam -name prime256v1 -genkey -noout), and its password, if it "
                f"has one, in {PASSWORD_VARIABLE}."
            ) from error
        write_text(out, made.read_text(encoding="utf-8"))


def require_signed(artifact: Artifact, signature: Path, public_key: Path) -> None:
    """Refuse an artifact that is not, file by file, what the owner of a key signed.

    Args:
        artifact: artifact to verify; files that MLflow puts beside it are left out.
        public_key: PEM file of the public half of the key.

    Raises:
        SignatureError: the signature or key cannot be read, the signature is not of this key, or a file was added,
            removed or changed.
        MissingExtraError: the extra 'signing' is not installed.
    """
    try:
        from cryptography.exceptions import InvalidSignature
        from model_signing import verifying
    except ModuleNotFoundError as error:
        raise MissingExtraError("model-signing", "signing") from error
    try:
        verifying.Config().use_elliptic_key_verifier(public_key=public_key).verify(artifact.folder, signature)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, InvalidSignature) as error:
        raise SignatureError(
            f"{artifact.folder} is not what {signature} signs by the key {public_key}: {_reason(error)}. Fetch "
            "artifact and signature anew, or give the public key of whoever signed it."
        ) from error


def _reason(error: Exception) -> str:
    """Reason why a signature is not valid: the names of changed files, without the hashes that model-signing adds."""
    changed = re.findall(r"Hash mismatch for \\?'([^'\\]+)", str(error))
    return f"{', '.join(changed)} changed since" if changed else str(error).rstrip(". ") or type(error).__name__
