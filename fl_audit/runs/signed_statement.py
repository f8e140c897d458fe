"""Signed statements about a finished audit: in-toto statements in DSSE envelopes, which can be checked offline.

A statement lists every file of the directory of an audit with its SHA-256 digest, and states the claim, the verdict,
and what was looked at and what was not. It proves that the holder of the key signed this statement. It proves neither
that the numbers are right nor who holds the key. Several people may sign an audit: the file has one line for each of
their statements.

Sources: the in-toto attestation framework, Statement v1 and its bundles (https://github.com/in-toto/attestation), and
DSSE, the dead simple signing envelope, v1.0.2 (https://github.com/secure-systems-lab/dsse).
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from fl_audit.atomic_files import write_bytes
from fl_audit.errors import InputError, require
from fl_audit.ordinary_files import LARGEST_TEXT, read_file, require_ordinary, sha256_of
from fl_audit.package_versions import package_versions
from fl_audit.runs.provenance import read_provenance
from fl_audit.runs.run_directory import RunDirectory
from fl_audit.runs.run_directory_checks import CONFIGURATION
from fl_audit.verdict.audit_result import AuditResult, read_result, scope_json

STATEMENTS = "statements.intoto.jsonl"
"""Name of the file with the signed statements in a run directory: one envelope in each line, the earliest first."""
_PAYLOAD_TYPE = "application/vnd.in-toto+json"
_STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
_PREDICATE_TYPE = "urn:fl-audit:audit-result:v1"
_SECRET = "challenger"  # the folder that a run directory may be handed on without
_MOST_NAMED = 3  # largest number of files that an error message names
_PROVES = (
    "The holder of the key states that the audit in these files, with these digests, had this verdict. That proves who "
    "states what, and no more."
)


@dataclass(frozen=True)
class SignerIdentity:
    """Name and role of the person who signs, as stated by that person and not verified."""

    name: str = ""
    role: str = ""


@dataclass(frozen=True)
class VerifiedStatement:
    """A statement with a valid signature, and the differences between its list of files and the directory."""

    statement: dict[str, Any]  # the in-toto statement
    key: str  # fingerprint of the key that signed the statement
    # Relative paths of files: changed since the signature, missing in the directory, not listed in the statement.
    edited: tuple[str, ...]
    missing: tuple[str, ...]
    added: tuple[str, ...]
    left_out: int  # number of files in the folder `challenger` if it is missing as a whole, else 0

    @property
    def agrees(self) -> bool:
        """Whether no file was edited, removed or added since the statement was signed.

        The folder `challenger`, which contains secrets, may be missing as a whole.
        """
        return not (self.edited or self.missing or self.added)


def new_key(path: Path) -> None:
    """Write a new Ed25519 private key in PEM that only the user may read, and its public key.

    Raises `InputError` if one of the two files exists, or `path` is a directory.

    `path`: The public key is written to the same path with `.pub` added.
    """
    require(bool(path.name) and not path.is_dir(), f"key {path} is a directory: accepted is a file")
    public = path.with_name(f"{path.name}.pub")
    for file in (path, public):
        require(not file.exists(), f"key {file} exists: accepted is a new file, or leave --new-key out to use it")
    key = Ed25519PrivateKey.generate()
    for file, content in (
        (path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())),
        (public, _pem(key.public_key()).encode()),
    ):
        write_bytes(file, content, private=file == path)


def sign(
    directory: Path, key: Path, signer: SignerIdentity = SignerIdentity(), with_new_key: bool = False
) -> VerifiedStatement:
    """Add a signed statement about a finished audit to those in its directory, and return it after checking it.

    Earlier statements stay. Raises `InputError` if a file was edited, added or removed since one of them was signed.
    """
    result = read_result(directory)
    earlier = _envelopes(directory) if (directory / STATEMENTS).exists() else []
    for signed_before in map(partial(_opened, directory), earlier):
        differing = signed_before.edited + signed_before.missing + signed_before.added
        changed = f"{', '.join(differing[:_MOST_NAMED])} changed since {_signer_words(signed_before)} signed"
        begin_anew = f"move {directory / STATEMENTS} to another directory to begin anew"
        require(not differing, f"{changed}: accepted are the files as they were signed; {begin_anew}")
    inside = f"key {key} lies in {directory}, and would be handed on with it"
    require(not key.resolve().is_relative_to(directory.resolve()), f"{inside}: accepted is a file elsewhere")
    if with_new_key:
        new_key(key)
    private = read_private_key(key)
    statement = _statement(directory, result, signer, _pem(private.public_key()))
    payload = json.dumps(statement, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    signature = private.sign(_authenticated(payload))
    signed = _envelope(payload, signature, fingerprint(private.public_key()))
    write_bytes(directory / STATEMENTS, b"".join([*earlier, signed]))
    return verify(directory)[-1]


def verify(directory: Path, key: Path | None = None) -> tuple[VerifiedStatement, ...]:
    """Check the signed statements of a run directory offline; return each with the files that were changed since.

    The earliest signature comes first. Raises `InputError` if a statement was edited, or none was signed by `key`.

    `key`: Only the statements that this key signed are returned. None returns all, each checked by the key that it
    names; the check then does not show who signed them.
    """
    statements = tuple(_opened(directory, envelope) for envelope in _envelopes(directory))
    if key is None:
        return statements
    wanted_fingerprint = fingerprint(read_public_key(key))
    signers = ", ".join(dict.fromkeys(statement.key for statement in statements))
    problem = f"{directory / STATEMENTS} was signed by {signers}, and not by {wanted_fingerprint} of {key}"
    require(any(statement.key == wanted_fingerprint for statement in statements), problem)
    return tuple(statement for statement in statements if statement.key == wanted_fingerprint)


def _envelopes(directory: Path) -> list[bytes]:
    """Return the envelopes in a run directory, the earliest first, each with the end of its line."""
    path = directory / STATEMENTS
    require_ordinary("signed statements", path)
    require(path.is_file(), f"{path} is missing: fl-audit sign writes it")
    envelopes = read_file(path, LARGEST_TEXT).splitlines(keepends=True)
    require(bool(envelopes), f"{path} is empty: accepted is a file that fl-audit sign wrote")
    return envelopes


def _opened(directory: Path, envelope: bytes) -> VerifiedStatement:
    """Return the statement in an envelope after checking its signature by the key that it names."""
    path = directory / STATEMENTS
    edited = f"{path} was edited, or has no signed statement of fl-audit"
    try:
        read = json.loads(envelope)
        payload = base64.b64decode(read["payload"], validate=True)
        (signature,) = read["signatures"]
        statement = json.loads(payload)
        signed = base64.b64decode(signature["sig"], validate=True)
        named_key = _public_key(statement["predicate"]["signer"]["key"].encode(), path)
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error, RecursionError):
        raise InputError(edited) from None
    try:
        named_key.verify(signed, _authenticated(payload))
    except InvalidSignature:
        raise InputError(edited) from None
    # Bytes beside the payload, such as spaces, are not signed: the file must be the one that signing writes.
    require(envelope == _envelope(payload, signed, fingerprint(named_key)), edited)
    return _compared(directory, statement, fingerprint(named_key))


def _compared(directory: Path, statement: dict[str, Any], key: str) -> VerifiedStatement:
    signed = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
    here = _digests(directory)
    missing = [name for name in signed if name not in here]
    secret = [name for name in signed if name.startswith(f"{_SECRET}/")]
    # Whoever gets a run without the challenger's folder can check the rest.
    left_out = secret if secret and not (directory / _SECRET).exists() else []
    return VerifiedStatement(
        statement,
        key,
        edited=tuple(name for name in signed if name in here and here[name] != signed[name]),
        missing=tuple(name for name in missing if name not in left_out),
        added=tuple(name for name in here if name not in signed),
        left_out=len(left_out),
    )


def fingerprint(key: "Ed25519PublicKey") -> str:
    """Return the fingerprint of a public key, by which people compare keys: "SHA256:" and a hexadecimal digest."""
    return "SHA256:" + hashlib.sha256(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).hexdigest()


def _signer_words(statement: VerifiedStatement) -> str:
    signer = statement.statement["predicate"]["signer"]
    return signer["name"] or signer["role"] or statement.key


def _statement(directory: Path, result: AuditResult, signer: SignerIdentity, key: str) -> dict[str, Any]:
    digests = _digests(directory)
    return {
        "_type": _STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in digests.items()],
        "predicateType": _PREDICATE_TYPE,
        "predicate": {
            "proves": _PROVES,
            "kind": str(result.kind),
            "name": result.name,
            "verdict": str(result.verdict),
            "claim": {"private": False} if result.guarantee is None else dict(result.guarantee),
            "warning": result.warning,
            "scope": scope_json(result.scope),
            "bundle": result.bundle,
            "versions": dict(result.versions) or package_versions(),
            **_run_values(directory, digests),
            "signed": datetime.now(UTC).isoformat(timespec="seconds"),
            "signer": {"name": signer.name, "role": signer.role, "key": key},
        },
    }


def _run_values(directory: Path, digests: Mapping[str, str]) -> dict[str, Any]:
    """Return what a statement says of a run beside its result: digests of configuration and data, versions, commit."""
    configuration = digests.get(CONFIGURATION.as_posix())
    if configuration is None:
        return {}
    origin = read_provenance(RunDirectory(directory))
    session = None if origin is None else origin.sessions[-1]
    return {
        "configuration": {"sha256": configuration},
        "data": None if origin is None else {"sha256": origin.data, "is_keyed": origin.is_keyed},
        "versions": {} if session is None else session.versions,
        "commit": None if session is None else session.commit,
        "began": None if session is None else session.began,
    }


def _digests(directory: Path) -> dict[str, str]:
    """Return the SHA-256 digests of all files of a run but the statements, by relative path."""
    files = sorted(path for path in directory.rglob("*") if path.is_symlink() or not path.is_dir())
    digests = {}
    for path in files:
        name = path.relative_to(directory).as_posix()
        if name == STATEMENTS:
            continue
        require(path.is_file() and not path.is_symlink(), f"{path} is no ordinary file: move it away")
        digests[name] = sha256_of(path)
    return digests


def _authenticated(payload: bytes) -> bytes:
    """Return the bytes that DSSE signs: the payload's type and the payload, each with its length."""
    kind = _PAYLOAD_TYPE.encode()
    return b" ".join([b"DSSEv1", str(len(kind)).encode(), kind, str(len(payload)).encode(), payload])


def _envelope(payload: bytes, signature: bytes, key: str) -> bytes:
    values = {
        "payloadType": _PAYLOAD_TYPE,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": key, "sig": base64.b64encode(signature).decode()}],
    }
    return json.dumps(values).encode() + b"\n"


def _pem(key: "Ed25519PublicKey") -> str:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def _key_file(path: Path, accepted: str) -> bytes:
    require(path.exists(), f"key {path} is missing: {accepted}")
    try:
        return read_file(path, LARGEST_TEXT)
    except InputError as error:
        raise InputError(f"key {error}") from None
    except OSError as error:
        raise InputError(f"key {path} cannot be read: {error.strerror}") from None


_PUBLIC = "accepted is the public key of who signed, FILE.pub of fl-audit sign --key FILE --new-key"
_ACCEPTED = "accepted is an Ed25519 key in PEM without a password, as fl-audit sign --new-key makes one"


def read_private_key(path: Path) -> "Ed25519PrivateKey":
    """Return the private key in a file; raise `InputError` if there is none of the accepted kind."""
    content = _key_file(path, f"fl-audit sign DIR --key {path} --new-key makes one")
    try:
        loaded_key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InputError(f"key {path} is no private key that can be read: {_ACCEPTED}") from None
    if not isinstance(loaded_key, Ed25519PrivateKey):
        raise InputError(f"key {path} is of another kind: {_ACCEPTED}")
    return loaded_key


def read_public_key(path: Path) -> "Ed25519PublicKey":
    """Return the public key in a file, or that of the private key in it; raise `InputError` if there is none."""
    return _public_key(_key_file(path, _PUBLIC), path)


def _public_key(content: bytes, path: Path) -> "Ed25519PublicKey":
    """Return the public key in a file's content, or that of the private key in it; `path` is for error messages."""
    try:
        loaded_key: object = load_pem_public_key(content)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        try:
            private = load_pem_private_key(content, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise InputError(f"key {path} is no key that can be read: {_ACCEPTED}") from None
        loaded_key = private.public_key() if isinstance(private, Ed25519PrivateKey) else None
    if not isinstance(loaded_key, Ed25519PublicKey):
        raise InputError(f"key {path} is of another kind: {_ACCEPTED}")
    return loaded_key
