"""A site's policy: twenty rules against results that are right, wrong, silent and forged."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fl_audit.cli.main import app
from fl_audit.privacy.ledger import LedgerTraining, add_to_ledger, composed_epsilon, read_ledger
from fl_audit.privacy.stated_releases import StatedReleases
from fl_audit.runs.policy_judgement import judge_ledger, judge_result, judge_values
from fl_audit.runs.signed_statement import STATEMENTS, new_key, sign, verify
from fl_audit.runs.site_policy import RuleStanding, SitePolicy, read_policy
from fl_audit.verdict.audit_result import AuditedKind, AuditResult, AuditScope
from fl_audit.verdict.verdict import Verdict
from tests.builders.commands import printed_by
from tests.builders.refusals import assert_refused

BUNDLE = "ab" * 32
GOOD = AuditResult(
    kind=AuditedKind.APP,
    name="hospital-app",
    verdict=Verdict.CONSISTENT,
    headline="Consistent.",
    guarantee={"epsilon": 2.5, "delta": 1e-6, "adjacency": "add-remove-client", "unit": "client"},
    scope=AuditScope(10, 10, ("removed", "replaced"), {"half precision": "every trial was refused"}),
    versions={"flwr": "1.42.0", "fl_audit": "0.1.0"},
    bundle=BUNDLE,
)


@pytest.fixture(scope="module")
def fingerprints(keys: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    directory = tmp_path_factory.mktemp("signed")
    return {name: written(directory / name, GOOD, [key]) for name, key in keys.items()}


def written(directory: Path, result: AuditResult, signers: list[Path]) -> str:
    """Write and sign a result, and return the fingerprint of the last key."""
    directory.mkdir(parents=True)
    (directory / "summary.json").write_text(json.dumps(result.to_json()))
    (directory / "report.html").write_text("<p>a page</p>")
    for key in signers:
        sign(directory, key)
    return verify(directory)[-1].key if signers else ""


@pytest.fixture
def signed(tmp_path: Path, keys: dict[str, Path]) -> Callable[..., Path]:
    """Return a function that writes a result, signed by both keys, to a directory."""

    def write(result: AuditResult, name: str = "it") -> Path:
        written(tmp_path / name, result, list(keys.values()))
        return tmp_path / name

    return write


@pytest.fixture(scope="module")
def policy(fingerprints: dict[str, str]) -> SitePolicy:
    values: dict[str, Any] = {
        "claim": {"largest-epsilon": 3.0, "largest-delta": 1e-5, "units": ["user", "client"]},
        "audit": {
            "verdicts": ["consistent"],
            "kinds": ["app", "run"],
            "all-rounds": True,
            "required-checks": ["removed", "replaced"],
            "versions": {"flwr": "1.32", "fl_audit": "0.1"},
        },
        "signatures": {"by": [fingerprints["officer"], fingerprints["engineer"]], "fewest": 2, "largest-age-days": 90},
        "app": {"bundles": [BUNDLE]},
    }
    return SitePolicy.model_validate(values)


def failures(policy: SitePolicy, directory: Path, now: datetime | None = None) -> dict[str, RuleStanding]:
    return {answer.rule: answer.standing for answer in judge_result(policy, directory, now) if not answer.is_passed}


def test_a_result_that_keeps_every_rule_passes(policy: SitePolicy, signed: Callable[..., Path]) -> None:
    answers = judge_result(policy, signed(GOOD))
    assert len(answers) == 15
    assert all(answer.standing is RuleStanding.MET for answer in answers)


WRONG: dict[str, tuple[AuditResult, dict[str, RuleStanding]]] = {
    "epsilon too large": (
        replace(GOOD, guarantee={**(GOOD.guarantee or {}), "epsilon": 3.01}),
        {"claim.largest-epsilon": RuleStanding.BROKEN},
    ),
    "epsilon without bound": (
        replace(GOOD, guarantee={**(GOOD.guarantee or {}), "epsilon": None}),
        {"claim.largest-epsilon": RuleStanding.BROKEN},
    ),
    "no claim": (
        replace(GOOD, verdict=Verdict.NO_GUARANTEE, guarantee=None),
        {
            "claim.largest-epsilon": RuleStanding.BROKEN,
            "claim.largest-delta": RuleStanding.BROKEN,
            "claim.units": RuleStanding.UNKNOWN,
            "audit.verdicts": RuleStanding.BROKEN,
        },
    ),
    "records alone": (
        replace(GOOD, guarantee={**(GOOD.guarantee or {}), "unit": "record"}),
        {"claim.units": RuleStanding.BROKEN},
    ),
    "unplayed rounds": (
        replace(GOOD, scope=replace(GOOD.scope, played_rounds=3)),
        {"audit.all-rounds": RuleStanding.BROKEN},
    ),
    "uncounted rounds": (
        replace(GOOD, scope=replace(GOOD.scope, played_rounds=None)),
        {"audit.all-rounds": RuleStanding.UNKNOWN},
    ),
    "rounds unsaid": (
        replace(GOOD, scope=replace(GOOD.scope, rounds=None)),
        {"claim.largest-epsilon": RuleStanding.UNKNOWN, "audit.all-rounds": RuleStanding.UNKNOWN},
    ),
    "a check refused": (
        replace(GOOD, scope=AuditScope(10, 10, ("removed",), {"replaced": "the time ran out"})),
        {"audit.required-checks": RuleStanding.BROKEN},
    ),
    "an old Flower": (
        replace(GOOD, versions={"flwr": "1.9.0", "fl_audit": "0.1.0"}),
        {"audit.versions": RuleStanding.BROKEN},
    ),
    "another bundle": (replace(GOOD, bundle="cd" * 32), {"app.bundles": RuleStanding.BROKEN}),
    "a bundle unsaid": (replace(GOOD, bundle=None), {"app.bundles": RuleStanding.UNKNOWN}),
    "a training": (replace(GOOD, kind=AuditedKind.TRAINING), {"audit.kinds": RuleStanding.BROKEN}),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_a_result_breaks_or_does_not_say_fails(name: str, policy: SitePolicy, signed: Callable[..., Path]) -> None:
    result, expected = WRONG[name]
    assert failures(policy, signed(result)) == expected


def test_a_rule_is_left_open_only_if_the_policy_allows_it(policy: SitePolicy, signed: Callable[..., Path]) -> None:
    lenient_policy = policy.model_copy(update={"allow_unknown": ("app.bundles",)})
    assert failures(lenient_policy, signed(replace(GOOD, bundle=None))) == {}
    other_bundle = signed(replace(GOOD, bundle="cd" * 32), "other")
    assert failures(lenient_policy, other_bundle) == {"app.bundles": RuleStanding.BROKEN}


def test_forged_results_fail(
    tmp_path: Path, keys: dict[str, Path], policy: SitePolicy, signed: Callable[..., Path]
) -> None:
    violated = signed(replace(GOOD, verdict=Verdict.VIOLATED), "violated")
    assert failures(policy, violated) == {"audit.verdicts": RuleStanding.BROKEN}
    # A verdict that was edited after it was signed is not what two people signed.
    (violated / "summary.json").write_text(json.dumps(GOOD.to_json()))
    assert failures(policy, violated)["signatures.files"] is RuleStanding.BROKEN
    assert failures(policy, violated)["signatures.fewest"] is RuleStanding.BROKEN
    # Statements of another audit, and a signature of somebody else in the place of the officer's.
    shutil.copy(signed(GOOD) / STATEMENTS, violated / STATEMENTS)
    assert failures(policy, violated) == {}, "the same files, and so the same audit"
    new_key(tmp_path / "stranger")
    written(tmp_path / "strange", GOOD, [keys["engineer"], tmp_path / "stranger"])
    assert failures(policy, tmp_path / "strange") == {"signatures.by": RuleStanding.BROKEN}
    written(tmp_path / "unsigned", GOOD, [])
    assert failures(policy, tmp_path / "unsigned") == {
        "signatures.by": RuleStanding.BROKEN,
        "signatures.fewest": RuleStanding.BROKEN,
        "signatures.largest-age-days": RuleStanding.UNKNOWN,
    }


CHECKPOINT = "ef" * 32
MODEL = replace(
    GOOD,
    kind=AuditedKind.MODEL,
    verdict=Verdict.INCONCLUSIVE,
    guarantee={**(GOOD.guarantee or {}), "unit": "user"},
    scope=AuditScope(made=("lower bound", "removed", "replaced")),
    bundle=None,
    numbers={
        "model": {"sha256": CHECKPOINT},
        "epsilon_at_least": 0.4,
        "outstanding": {"share": 0.012},
        "epsilon_star": {"value": 1.5, "is_lower_bound": False, "interval": [1.0, 2.0]},
    },
)


def twenty_rules(directory: Path, fingerprints: Mapping[str, str]) -> SitePolicy:
    """Write a policy with every rule that there is, and its ledger of two trainings, and return the policy."""
    ledger = directory / "site.ledger"
    for name in ("first", "second"):
        add_to_ledger(ledger, LedgerTraining(name, StatedReleases("add-remove-record", 2.0, 10)))
    text = f"""
allow-unknown = [
    "app.bundles", "audit.all-rounds", "model.checkpoints", "model.largest-epsilon-star", "model.largest-lower-bound",
    "model.largest-outstanding-share",
]
[claim]
largest-epsilon = 3.0
largest-delta = 1e-5
units = ["user", "client"]
[audit]
verdicts = ["consistent", "inconclusive"]
kinds = ["app", "model"]
all-rounds = true
required-checks = ["removed", "replaced"]
versions = {{ flwr = "1.32", fl_audit = "0.1" }}
[signatures]
by = ["{fingerprints["officer"]}", "{fingerprints["engineer"]}"]
fewest = 2
largest-age-days = 90
[app]
bundles = ["{BUNDLE}"]
[model]
checkpoints = ["{CHECKPOINT}"]
largest-epsilon-star = 2.0
largest-lower-bound = 1.0
largest-outstanding-share = 0.05
[ledger]
file = "site.ledger"
largest-epsilon = 30.0
delta = 1e-5
digest = "{read_ledger(ledger)[-1].digest}"
"""
    (directory / "policy.toml").write_text(text)
    return read_policy(directory / "policy.toml")


def test_twenty_rules_against_ten_results(tmp_path: Path, keys: dict[str, Path], fingerprints: dict[str, str]) -> None:
    """Hold a right app and a right model, three wrong results, and five forgeries against every rule."""
    policy = twenty_rules(tmp_path, fingerprints)
    signers = list(keys.values())
    new_key(tmp_path / "stranger")

    def stored(name: str, result: AuditResult, by: list[Path] = signers) -> Path:
        written(tmp_path / name, result, by)
        return tmp_path / name

    edited_verdict = stored("edited verdict", replace(GOOD, verdict=Verdict.VIOLATED))
    (edited_verdict / "summary.json").write_text(json.dumps(GOOD.to_json()))
    edited_numbers = stored("edited numbers", replace(MODEL, numbers={**MODEL.numbers, "epsilon_at_least": 4.0}))
    (edited_numbers / "summary.json").write_text(json.dumps(MODEL.to_json()))
    added = stored("added page", GOOD)
    (added / "annex.html").write_text("<p>approved</p>")
    borrowed = stored("borrowed signature", replace(GOOD, name="another"), [])
    shutil.copy(stored("right app", GOOD) / STATEMENTS, borrowed)
    star = {**MODEL.numbers, "epsilon_star": {"value": 2.5, "is_lower_bound": False, "interval": [2.0, 3.0]}}
    unsure = {**MODEL.numbers, "epsilon_star": {"value": 0.0, "is_lower_bound": True, "interval": [0.0, 3.0]}}
    results = {
        tmp_path / "right app": set(),
        stored("right model", MODEL): set(),
        stored("other bundle", replace(GOOD, bundle="cd" * 32)): {"app.bundles"},
        stored("large Epsilon*", replace(MODEL, numbers=star)): {"model.largest-epsilon-star"},
        stored("few losses", replace(MODEL, numbers=unsure)): {"model.largest-epsilon-star"},
        edited_verdict: {"signatures.files", "signatures.by", "signatures.fewest", "signatures.largest-age-days"},
        edited_numbers: {"signatures.files", "signatures.by", "signatures.fewest", "signatures.largest-age-days"},
        added: {"signatures.files", "signatures.by", "signatures.fewest", "signatures.largest-age-days"},
        borrowed: {"signatures.files", "signatures.by", "signatures.fewest", "signatures.largest-age-days"},
        stored("replaced signature", GOOD, [keys["engineer"], tmp_path / "stranger"]): {"signatures.by"},
    }
    assert len(results) == 10
    assert {result_path.name: set(failures(policy, result_path)) for result_path in results} == {
        result_path.name: expected for result_path, expected in results.items()
    }
    answers = [answer for result_path in results for answer in judge_result(policy, result_path)]
    ledger = judge_ledger(policy, tmp_path)
    assert all(answer.is_passed for answer in ledger)
    # The ledger's rules are three: the file is asked where it is missing.
    assert len({answer.rule for answer in (*answers, *ledger)} | {"ledger.file"}) == 20
    # An old ledger, which lacks the last training, is found although it spends less.
    (tmp_path / "site.ledger").write_text((tmp_path / "site.ledger").read_text().splitlines(keepends=True)[0])
    assert [answer.rule for answer in judge_ledger(policy, tmp_path) if not answer.is_passed] == ["ledger.digest"]


def test_every_number_of_a_model_can_break_its_ceiling() -> None:
    policy = SitePolicy.model_validate(
        {
            "model": {
                "checkpoints": [CHECKPOINT],
                "largest-epsilon-star": 2.0,
                "largest-lower-bound": 1.0,
                "largest-outstanding-share": 0.05,
            }
        }
    )
    changes: dict[str, dict[str, Any]] = {
        "model.checkpoints": {"model": {"sha256": "cd" * 32}},
        "model.largest-epsilon-star": {"epsilon_star": {"value": None, "is_lower_bound": False, "interval": [1, None]}},
        "model.largest-lower-bound": {"epsilon_at_least": 1.01},
        "model.largest-outstanding-share": {"outstanding": {"share": 0.06}},
    }
    for rule, change in changes.items():
        answers = judge_values(policy, replace(MODEL, numbers={**MODEL.numbers, **change}))
        assert {answer.rule: answer.standing for answer in answers if not answer.is_passed} == {
            rule: RuleStanding.BROKEN
        }
    answers = judge_values(policy, replace(MODEL, numbers={}))
    assert [answer.standing for answer in answers] == [RuleStanding.UNKNOWN] * 4
    assert [answer.standing for answer in judge_values(policy, GOOD)] == [RuleStanding.UNKNOWN] * 4


@pytest.mark.parametrize(("days", "is_met"), [(89, True), (91, False), (-1, False)])
def test_a_signature_ages(days: int, is_met: bool, policy: SitePolicy, signed: Callable[..., Path]) -> None:
    now = datetime.now(UTC) + timedelta(days=days)
    assert (failures(policy, signed(GOOD), now) == {}) is is_met


def test_the_ledger_of_a_site_is_composed_and_an_old_one_is_found(tmp_path: Path) -> None:
    path = tmp_path / "site.ledger"
    for name in ("first", "second"):
        add_to_ledger(path, LedgerTraining(name, StatedReleases("add-remove-record", 2.0, 10)))
    spent = composed_epsilon(read_ledger(path), 1e-5).epsilon
    last = read_ledger(path)[-1].digest

    def standings(largest: float, **extra_rules: str) -> list[RuleStanding]:
        rules = {"file": "site.ledger", "largest-epsilon": largest, "delta": 1e-5} | extra_rules
        policy = SitePolicy.model_validate({"ledger": rules})
        return [answer.standing for answer in judge_ledger(policy, tmp_path)]

    assert standings(spent * 1.001, digest=last) == [RuleStanding.MET] * 2
    assert standings(spent * 0.999) == [RuleStanding.BROKEN]
    path.write_text(path.read_text().splitlines(keepends=True)[0])
    assert standings(spent, digest=last) == [RuleStanding.MET, RuleStanding.BROKEN]
    path.unlink()
    assert standings(spent) == [RuleStanding.UNKNOWN]
    assert judge_ledger(SitePolicy(), tmp_path) == ()


@pytest.mark.parametrize(
    ("text", "expected_message"),
    [
        ("claims = 1", "claims"),
        ("[claim]\nlargest-epsilon = -1", "largest-epsilon is -1"),
        ('[audit]\nverdicts = ["fine"]', "fine"),
        ('allow-unknown = ["claim.epsilon"]', "claim.epsilon"),
        ('[signatures]\nby = ["officer"]', "64 hexadecimal"),
        ("[claim", "cannot be read"),
    ],
)
def test_a_wrong_policy_is_refused_in_one_line(text: str, expected_message: str, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(text)
    assert_refused(expected_message, read_policy, tmp_path / "policy.toml")


def test_the_command_prints_a_line_a_rule_and_ends_by_it(
    tmp_path: Path, fingerprints: dict[str, str], signed: Callable[..., Path]
) -> None:
    good = str(signed(GOOD, "good"))
    bad = str(signed(WRONG["another bundle"][0], "bad"))
    policy = tmp_path / "policy.toml"
    policy.write_text(f'[app]\nbundles = ["{BUNDLE}"]\n[signatures]\nby = ["{fingerprints["officer"]}"]\n')
    assert len(printed_by("gate", policy, good).splitlines()) == 4
    failed = CliRunner().invoke(app, ["gate", str(policy), good, bad, "--json"])
    answer = json.loads(failed.output)
    assert (failed.exit_code, answer["passes"], len(answer["answers"])) == (4, False, 2)
