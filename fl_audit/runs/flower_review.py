"""Signed reviews of an app's bundle in Flower's own form, which `flower-supernode --trusted-entities` checks.

A SuperLink passes the reviews of a bundle (FAB) on to its SuperNodes. A SuperNode with `--trusted-entities` trains only
if a key that it trusts signed the bundle. What is signed is the time of the signature in seconds, as 8 bytes with the
highest first, followed by the SHA-256 digest of the bundle.

Source: `create_message_to_sign` and `_verify_fab` of Flower 1.41.
"""

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fl_audit.atomic_files import write_json
from fl_audit.errors import InputError, require
from fl_audit.ordinary_files import read_text_file
from fl_audit.runs.signed_statement import fingerprint, read_private_key, read_public_key
from fl_audit.verdict.audit_result import AuditedKind, AuditResult
from fl_audit.verdict.verdict import Verdict

_NAMES = ("public_key_id", "signature", "signed_at")
_ACCEPTED = "accepted is a new file, or one that fl-audit sign --flower-review wrote"


def reviewable_bundle(result: AuditResult) -> str:
    """Return the hash of the bundle of an audited app.

    Raises `InputError` if no app was audited, its claim is violated, or the hash is not known.
    """
    kind = f"audited was a {result.kind}"
    require(result.kind is AuditedKind.APP, f"{kind}: accepted for a review in Flower's form is an app")
    violated = "the claim of this app is violated: accepted for a review in Flower's form is one that is not violated"
    require(result.verdict is not Verdict.VIOLATED, violated)
    if result.bundle is None:
        raise InputError("the hash of the app's bundle is not known: accepted is what fl-audit review --out wrote")
    return result.bundle


def add_flower_review(path: Path, bundle: str, key: Path) -> None:
    """Add a signed review of a bundle to a JSON file of reviews, in the place of an earlier one by the same key.

    Raises `InputError` if the file holds something else, or the key cannot be read.

    Parameters
    ----------
    path
        The file of reviews, which is created if it is missing.
    bundle
        SHA-256 digest of the bundle, hexadecimal.
    key
        File of the private key that signs.
    """
    other_reviews = read_flower_reviews(path) if path.exists() else []
    private = read_private_key(key)
    signed_at = int(datetime.now(UTC).timestamp())
    signature = private.sign(signed_at.to_bytes(8, byteorder="big") + bytes.fromhex(bundle))
    review = {
        "public_key_id": fingerprint(private.public_key()),
        "signature": base64.urlsafe_b64encode(signature).rstrip(b"=").decode(),
        "signed_at": signed_at,
    }
    write_json(path, [*(other for other in other_reviews if other["public_key_id"] != review["public_key_id"]), review])


def read_flower_reviews(path: Path) -> list[dict[str, Any]]:
    """Return the reviews in a file; raise `InputError` if it holds something else."""
    try:
        reviews = json.loads(read_text_file(path))
        is_list = isinstance(reviews, list) and all(set(review) == set(_NAMES) for review in reviews)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path} has no reviews: {_ACCEPTED}") from error
    require(is_list, f"{path} has no reviews: {_ACCEPTED}")
    return list(reviews)


def trusted_entity(key: Path) -> str:
    """Return the line by which a SuperNode trusts a key, for the YAML file of `--trusted-entities`."""
    public = read_public_key(key)
    return f'"{fingerprint(public)}": "{public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()}"'
