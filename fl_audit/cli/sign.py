"""The commands about signed statements: `sign` and `verify`."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fl_audit.cli.options import DirectoryArgument, JsonOption, print_json
from fl_audit.errors import require
from fl_audit.runs.exit_statuses import VIOLATED
from fl_audit.runs.option_declarations import option, switch

if TYPE_CHECKING:
    from fl_audit.runs.signed_statement import VerifiedStatement

_SHOWN = 5


def sign(
    directory: DirectoryArgument,
    key: Annotated[Path, option("FILE", "Ed25519 private key, in PEM and without a password.")],
    new_key: Annotated[
        bool, switch("--new-key", "Make the key first: FILE, for you alone, and FILE.pub, for all who verify.")
    ] = False,
    name: Annotated[str, option("TEXT", "Who signs.")] = "",
    role: Annotated[str, option("TEXT", "Role of the signer, such as data protection officer.")] = "",
) -> None:
    """Sign what DIR holds: write DIR/statement.intoto.json, with the digest of every file, verdict and scope.

    DIR is the directory of a finished run. The signature proves who makes the statement. It does not prove that the
    statement is true.
    """

    _require_library()

    from fl_audit.runs.signed_statement import STATEMENT, SignerIdentity, sign

    found = sign(directory, key, SignerIdentity(name, role), new_key)
    public = key.with_name(f"{key.name}.pub")
    if new_key:
        print(f"key: {key}, for you alone; {public} is for all who verify")
    print(f"signed: {directory / STATEMENT}, {len(found.statement['subject'])} files")
    print(f"verdict: {found.statement['predicate']['verdict']}")
    print(f"key: {found.key}")
    print(f"next: fl-audit verify {directory} --key {public if public.is_file() else key}")


def verify(
    directory: DirectoryArgument,
    key: Annotated[
        Path | None, option("FILE", "Public key that must have signed.  [default: the one that the statement names]")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check DIR/statement.intoto.json and every file that it names, offline; status 4 if a file differs.

    With --key, the command checks that this key signed the statement. Without it, the statement's own key is used, and
    nothing proves whose key that is.
    """

    _require_library()

    from fl_audit.runs.signed_statement import verify

    found = verify(directory, key)
    if as_json:
        print_json(
            {
                "agrees": found.agrees,
                "key": found.key,
                "key_was_given": key is not None,
                "edited": list(found.edited),
                "missing": list(found.missing),
                "added": list(found.added),
                "left_out": found.left_out,
                "statement": found.statement,
            }
        )
    else:
        _print(found, is_key_given=key is not None)
    if not found.agrees:
        sys.exit(VIOLATED)


def _print(found: "VerifiedStatement", is_key_given: bool) -> None:
    predicate = found.statement["predicate"]
    signer = predicate["signer"]
    who = ", ".join(word for word in (signer["name"], signer["role"]) if word) or "a signer without a name"
    whose = "which is the given one" if is_key_given else "and nothing says whose it is: compare it, or --key FILE"
    print(f"signed: {predicate['signed']} by {who}")
    print(f"key: {found.key}, {whose}")
    print(f"verdict: {predicate['verdict']}")
    if found.left_out:
        print(f"not checked: {found.left_out} files of challenger/, which is not here")
    for line in _faults(found):
        print(line)
    if found.agrees:
        print(f"files: {len(found.statement['subject']) - found.left_out} are as they were signed")


def _faults(found: "VerifiedStatement") -> list[str]:
    lines = []
    for word in ("edited", "missing", "added"):
        names: tuple[str, ...] = getattr(found, word)
        if names:
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            lines.append(f"{word}: {', '.join(names[:_SHOWN])}{more}")
    return lines


def _require_library() -> None:
    needed = "signatures need the package cryptography: pip install 'fl-audit[sign]' brings it"
    require(find_spec("cryptography") is not None, needed)
