"""Signed statements: any edited byte is found, another key is refused, and the envelope is what the standards say."""

import base64
import json
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from typer.testing import CliRunner

from fl_audit.app_audits.page import write_result
from fl_audit.cli.main import app
from fl_audit.runs.signed_statement import STATEMENTS, SignerIdentity, new_key, sign, verify
from fl_audit.verdict.audit_result import AuditedKind, AuditResult
from fl_audit.verdict.verdict import Verdict
from tests.builders.commands import printed_by
from tests.builders.refusals import assert_refused
from tests.builders.runs import run_locally, small_plan


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Path:

    directory = tmp_path_factory.mktemp("signed")
    run_locally(small_plan(), directory / "run")
    (directory / "run" / "report.html").write_text("<p>a page</p>")
    new_key(directory / "key")
    sign(directory / "run", directory / "key", SignerIdentity("A. Officer", "data protection officer"))
    return directory


@pytest.fixture
def copied(signed: Path, tmp_path: Path) -> Path:
    shutil.copytree(signed, tmp_path / "copy")
    return tmp_path / "copy"


def test_a_signed_directory_agrees_and_says_what_was_found(signed: Path) -> None:
    (verification,) = verify(signed / "run", signed / "key.pub")
    summary = json.loads((signed / "run" / "summary.json").read_text())
    assert verification.agrees
    assert verification.statement["predicate"]["verdict"] == summary["verdict"]
    assert verification.statement["predicate"]["scope"] == summary["checks"]
    assert verification.statement["predicate"]["signer"]["name"] == "A. Officer"
    files = {path.relative_to(signed / "run").as_posix() for path in (signed / "run").rglob("*") if path.is_file()}
    assert {subject["name"] for subject in verification.statement["subject"]} == files - {STATEMENTS}
    assert (signed / "key").stat().st_mode & 0o077 == 0


def test_a_hundred_edits_of_a_byte_of_any_file_are_found(copied: Path) -> None:
    run = copied / "run"
    draw = random.Random(0)
    files = [path for path in sorted(run.rglob("*")) if path.is_file() and path.stat().st_size]
    tried = [*files, run / STATEMENTS] + [draw.choice(files) for _ in range(100 - len(files))]
    tried += [run / STATEMENTS] * 20
    for path in tried:
        content = bytearray(path.read_bytes())
        position = draw.randrange(len(content))
        mask = draw.randrange(1, 256)
        content[position] ^= mask
        whole = path.read_bytes()
        path.write_bytes(content)
        if path.name == STATEMENTS:
            assert_refused(None, verify, run)
        else:
            assert verify(run)[0].edited == (path.relative_to(run).as_posix(),)
        path.write_bytes(whole)
    assert verify(run)[0].agrees


def test_files_that_are_added_or_missing_are_found_and_a_run_may_be_handed_on_without_its_secrets(copied: Path) -> None:
    run = copied / "run"
    (run / "more.txt").write_text("")
    (run / "timing.json").unlink()
    (verification,) = verify(run)
    assert (verification.added, verification.missing, verification.agrees) == (("more.txt",), ("timing.json",), False)
    (run / "challenger" / "seed.json").unlink()
    assert "challenger/seed.json" in verify(run)[0].missing
    shutil.rmtree(run / "challenger")
    (verification,) = verify(run)
    assert verification.left_out > 1
    assert verification.missing == ("timing.json",)


def test_links_are_refused_as_they_hold_what_nobody_signed(copied: Path) -> None:
    run = copied / "run"
    other_directory = copied / "other"
    other_directory.mkdir()
    (other_directory / "figure.txt").write_text("x")
    for target in (other_directory, other_directory / "figure.txt", copied / "nowhere"):
        (run / "more").symlink_to(target)
        assert_refused(r"more .*no ordinary", verify, run)
        assert_refused(r"more .*no ordinary", sign, run, copied / "key")
        (run / "more").unlink()
    assert verify(run)[0].agrees


def test_a_key_in_the_run_directory_is_not_handed_on_with_it(copied: Path) -> None:
    run = copied / "run"
    for key_path in (run / "key", run / "challenger" / ".." / "key"):
        assert_refused("handed on", sign, run, key_path, with_new_key=True)
    assert not (run / "key").exists()
    assert verify(run)[0].agrees


def test_a_second_signature_is_added_and_replaces_none(copied: Path) -> None:
    new_key(copied / "other")
    assert_refused("not by SHA256:", verify, copied / "run", copied / "other.pub")
    sign(copied / "run", copied / "other", SignerIdentity("B. Auditor"))
    for key, name in (("key.pub", "A. Officer"), ("other.pub", "B. Auditor")):
        (verification,) = verify(copied / "run", copied / key)
        assert verification.agrees
        assert verification.statement["predicate"]["signer"]["name"] == name
    assert [verification.agrees for verification in verify(copied / "run")] == [True, True]


def test_nobody_signs_other_files_beside_an_earlier_signature(copied: Path) -> None:
    new_key(copied / "other")
    before = (copied / "run" / STATEMENTS).read_bytes()
    (copied / "run" / "report.html").write_text("<p>another page</p>")
    named = r"report.html changed since A. Officer signed: .*move .* to begin anew"
    assert_refused(named, sign, copied / "run", copied / "other")
    assert (copied / "run" / STATEMENTS).read_bytes() == before
    shutil.move(copied / "run" / STATEMENTS, copied / "earlier")  # the remedy that the message names
    assert sign(copied / "run", copied / "other").agrees
    assert_refused("was signed by", verify, copied / "run", copied / "key.pub")


def test_the_envelope_is_dsse_around_an_in_toto_statement(signed: Path) -> None:
    """Check the signature by the words of the DSSE specification, apart from the code that is tested."""
    envelope = json.loads((signed / "run" / STATEMENTS).read_text())
    payload = base64.b64decode(envelope["payload"])
    kind = envelope["payloadType"]
    signed_message = f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload
    key = load_pem_public_key((signed / "key.pub").read_bytes())
    key.verify(base64.b64decode(envelope["signatures"][0]["sig"]), signed_message)  # type: ignore[call-arg,union-attr]
    statement = json.loads(payload)
    assert kind == "application/vnd.in-toto+json"
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert {"subject", "predicateType", "predicate"} < set(statement)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not here")
def test_a_key_of_openssl_signs_and_one_of_another_kind_is_refused(copied: Path) -> None:
    for kind in ("ed25519", "x25519"):
        subprocess.run(["openssl", "genpkey", "-algorithm", kind, "-out", copied / kind], check=True)
    assert sign(copied / "run", copied / "ed25519").agrees
    # No public key lies beside it: what the command offers next has to work all the same.
    output = CliRunner().invoke(app, ["sign", str(copied / "run"), "--key", str(copied / "ed25519")]).stdout
    following = output.splitlines()[-1].removeprefix("next: fl-audit ").split()
    assert CliRunner().invoke(app, following).exit_code == 0
    assert_refused("Ed25519 key in PEM", sign, copied / "run", copied / "x25519")


def test_what_cannot_be_signed_is_refused(copied: Path, tmp_path: Path) -> None:
    assert_refused("--new-key makes one", sign, copied / "run", tmp_path / "gone")
    (tmp_path / "text").write_text("no key")
    assert_refused("no private key", sign, copied / "run", tmp_path / "text")
    assert_refused("exists", new_key, copied / "key")
    assert_refused("fl-audit sign writes", verify, tmp_path)
    assert_refused(r"gone .*missing: .*public key", verify, copied / "run", tmp_path / "gone")
    (copied / "run" / STATEMENTS).write_text("")
    assert_refused("is empty", verify, copied / "run")
    (copied / "run" / "summary.json").unlink()
    assert_refused("that is finished", sign, copied / "run", copied / "key")


def test_the_commands(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(copied)
    printed_by("sign", "run", "--key", "mine", "--new-key", "--name", "B", "--role", "officer")
    command_result = CliRunner().invoke(app, ["verify", "run", "--key", "mine.pub"])
    assert command_result.exit_code == 0, command_result.exception
    assert "by B, officer" in command_result.stdout
    assert "the given one" in command_result.stdout
    assert command_result.stdout.splitlines()[-1].startswith("agrees: ")
    (copied / "run" / "report.html").write_text("x")
    command_result = CliRunner().invoke(app, ["verify", "run"])
    assert command_result.exit_code == 4
    assert command_result.stdout.splitlines()[-1] == "differs: edited: report.html"
    summary = json.loads((copied / "run" / "summary.json").read_text())
    assert summary["verdict"] not in command_result.stdout, "nothing reassuring stands before a failure"
    answer = json.loads(CliRunner().invoke(app, ["verify", "run", "--json"]).stdout)
    assert [statement["edited"] for statement in answer["statements"]] == [["report.html"]] * 2
    assert not answer["agrees"]


@pytest.mark.parametrize("kind", AuditedKind)
def test_every_kind_of_result_is_signed_twice_and_an_edited_verdict_is_found(kind: AuditedKind, tmp_path: Path) -> None:
    directory = tmp_path / "result"
    directory.mkdir()
    result = AuditResult(kind, "tiny", Verdict.VIOLATED, "Violated.", warning="assures next to nothing")
    write_result(result, directory, subtitle="", step="")
    for name in ("officer", "engineer"):
        statement = sign(directory, tmp_path / name, SignerIdentity(name), with_new_key=True).statement
        predicate = statement["predicate"]
        assert (predicate["kind"], predicate["verdict"]) == (str(kind), "violated")
        assert predicate["warning"] == "assures next to nothing"
    runner = CliRunner()
    agreed = runner.invoke(app, ["verify", str(directory)])
    assert agreed.exit_code == 0
    assert agreed.stdout.splitlines()[-1].startswith("agrees")
    assert agreed.stdout.count("signed: ") == 2
    summary = directory / "summary.json"
    summary.write_text(summary.read_text().replace('"violated"', '"consistent"'))
    differs = runner.invoke(app, ["verify", str(directory)])
    assert differs.exit_code == 4
    assert "consistent" not in differs.stdout
    assert differs.stdout.splitlines()[-1] == "differs: edited: summary.json"
