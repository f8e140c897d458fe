"""The commands `sign` and `verify` for signed results, and `gate`, which holds results against a site's policy."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fl_audit.cli.options import DirectoryArgument, JsonOption, print_json
from fl_audit.errors import require
from fl_audit.runs.expected_errors import VIOLATED
from fl_audit.runs.option_declarations import argument, option, switch
from fl_audit.words import plural

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
    flower_review: Annotated[
        Path | None,
        option("FILE", "Of an app: add a review of its bundle to FILE, for flower-supernode --trusted-entities."),
    ] = None,
) -> None:
    """Sign what DIR holds: add a statement to DIR/statements.intoto.jsonl, with digests of all files and the verdict.

    DIR is the directory of a finished run, or of another audit that was written with --out. Several people may sign it,
    each by a statement of their own. The signature proves who makes the statement. It does not prove that the statement
    is true.
    """

    require_library()

    from fl_audit.runs.signed_statement import STATEMENTS, SignerIdentity, sign, verify

    inside = flower_review is not None and flower_review.resolve().is_relative_to(directory.resolve())
    require(not inside, f"--flower-review {flower_review} lies in {directory}: accepted is a file elsewhere")

    from fl_audit.runs.flower_review import add_flower_review, reviewable_bundle, trusted_entity
    from fl_audit.verdict.audit_result import read_result

    bundle = None if flower_review is None else reviewable_bundle(read_result(directory))
    statement = sign(directory, key, SignerIdentity(name, role), new_key)
    public = key.with_name(f"{key.name}.pub")
    if new_key:
        print(f"key: {key}, for you alone; {public} is for all who verify")
    signatures = plural(len(verify(directory)), "signature")
    print(f"signed: {directory / STATEMENTS}, {len(statement.statement['subject'])} files, {signatures} now")
    print(f"verdict: {statement.statement['predicate']['verdict']}")
    print(f"key: {statement.key}")
    if flower_review is not None and bundle is not None:
        add_flower_review(flower_review, bundle, key)
        print(f"review: {flower_review}; a SuperNode that trusts this key has this line in its trusted entities:")
        print(trusted_entity(key))
    print(f"next: fl-audit verify {directory} --key {public if public.is_file() else key}")


def verify(
    directory: DirectoryArgument,
    key: Annotated[
        Path | None, option("FILE", "Public key that must have signed.  [default: the one that the statement names]")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check DIR/statements.intoto.jsonl and every file that it names, offline; status 4 if a file differs.

    With --key, the command checks the statements that this key signed, of which there must be one. Without it, all
    statements are checked by the keys that they name, and nothing proves whose keys these are.
    """

    require_library()

    from fl_audit.runs.signed_statement import verify

    statements = verify(directory, key)
    agrees = all(statement.agrees for statement in statements)
    if as_json:
        print_json(
            {
                "agrees": agrees,
                "key_was_given": key is not None,
                "statements": [
                    {
                        "agrees": statement.agrees,
                        "key": statement.key,
                        "edited": list(statement.edited),
                        "missing": list(statement.missing),
                        "added": list(statement.added),
                        "left_out": statement.left_out,
                        "statement": statement.statement,
                    }
                    for statement in statements
                ],
            }
        )
    else:
        # Where a statement differs, no other one may be read as reassurance.
        differing = [statement for statement in statements if not statement.agrees]
        for statement in differing or statements:
            for line in _lines(statement, is_key_given=key is not None):
                print(line)
    if not agrees:
        sys.exit(VIOLATED)


def _lines(statement: "VerifiedStatement", is_key_given: bool) -> list[str]:
    """Return who signed a statement, what was not checked, and last whether all files agree or what differs.

    The verdict that was signed is left out if a file differs, since it is of other files.
    """
    predicate = statement.statement["predicate"]
    signer = predicate["signer"]
    signer_name = ", ".join(word for word in (signer["name"], signer["role"]) if word) or "a signer without a name"
    whose = "which is the given one" if is_key_given else "and nothing says whose it is: compare it, or --key FILE"
    lines = [f"signed: {predicate['signed']} by {signer_name}", f"key: {statement.key}, {whose}"]
    if statement.left_out:
        lines.append(f"not checked: {statement.left_out} files of challenger/, which is not here")
    if not statement.agrees:
        return [*lines, f"differs: {'; '.join(_differences(statement))}"]
    files = len(statement.statement["subject"]) - statement.left_out
    return [*lines, f"verdict: {predicate['verdict']}", f"agrees: {files} files are as they were signed"]


def _differences(statement: "VerifiedStatement") -> list[str]:
    phrases = []
    for word in ("edited", "missing", "added"):
        names: tuple[str, ...] = getattr(statement, word)
        if names:
            suffix = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            phrases.append(f"{word}: {', '.join(names[:_SHOWN])}{suffix}")
    return phrases


def require_library() -> None:
    """Raise `InputError` if the package is missing that signs and verifies."""
    needed = "signatures need the package cryptography: pip install 'fl-audit[sign]' brings it"
    require(find_spec("cryptography") is not None, needed)


def gate(
    policy: Annotated[Path, argument("POLICY.toml", "The site's rules: its largest epsilon, who has to sign.")],
    results: Annotated[list[Path], argument("RESULT...", "Directories of audits, with their signed statements.")],
    as_json: JsonOption = False,
) -> None:
    """Hold the results of audits, and the site's ledger, against the site's policy; status 4 if a rule is not met.

    The command prints one line for each rule. A value that a result does not say is "not known", and fails unless the
    policy allows it.
    """
    require_library()

    from fl_audit.runs.policy_judgement import judge_ledger, judge_result
    from fl_audit.runs.site_policy import answers_json, read_policy

    site_policy = read_policy(policy)
    answers = {str(directory): judge_result(site_policy, directory) for directory in results}
    ledger = judge_ledger(site_policy, policy.parent)
    if ledger:
        answers["ledger"] = ledger
    failed = [answer for rule_answers in answers.values() for answer in rule_answers if not answer.is_passed]
    if as_json:
        print_json({"passes": not failed, "answers": answers_json(answers)})
    else:
        for name, rule_answers in answers.items():
            for answer in rule_answers:
                print(f"{name}: {answer.rule}: {answer.standing}: {answer.text}")
        print(f"fails: {plural(len(failed), 'rule')} not met" if failed else "passes: every rule is met")
    if failed:
        raise typer.Exit(VIOLATED)
