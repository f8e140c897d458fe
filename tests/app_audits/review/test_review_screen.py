"""The screen of a review says what was observed, and names how many trials asked; what no trial asked is not safe."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import MetricRecord
from flwr.common import ndarrays_to_parameters
from flwr.server.strategy import FedAvg as OldFedAvg
from flwr.serverapp.strategy import FedAvg

from fl_audit.app_audits.audit_results import review_result
from fl_audit.app_audits.black_box.audited_system import AuditedSystem
from fl_audit.app_audits.black_box.metric_lookups import plain_numbers
from fl_audit.app_audits.black_box.scenario_texts import scenario_texts
from fl_audit.app_audits.black_box.system_audit import audit_system
from fl_audit.app_audits.claim_audit.claim import EpsilonDeltaLimit, StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_messages import TOO_FEW, untried_words
from fl_audit.app_audits.claim_audit.claim_audit_results import (
    ClaimAudit,
    DistinguisherTest,
    ScenarioTrialsSummary,
    TrialBudget,
    verdict_of,
)
from fl_audit.app_audits.claim_audit.distinguishers import Distinguisher, FeatureSort
from fl_audit.app_audits.claim_audit.trial_results import findings
from fl_audit.app_audits.page import write_app_page
from fl_audit.app_audits.review import client_mods
from fl_audit.app_audits.review.claims import StatedAppClaim
from fl_audit.app_audits.review.plan import probed
from fl_audit.app_audits.review.privacy_mentions import find_record_privacy_mentions, mentions_phrase, of_settings
from fl_audit.app_audits.review.review import review
from fl_audit.app_audits.review.review_messages import headline, report_lines_of_review, review_json
from fl_audit.app_audits.review.review_result import ReviewResult, server_verdict
from fl_audit.app_audits.review.scenario_groups import SideChannel, side_channel_results
from fl_audit.app_audits.trial_options import ReviewOptions
from fl_audit.statistics.lower_bound_methods import BoundMethod
from fl_audit.verdict.verdict import Verdict
from tests.app_audits.review.apps import CLIENT, caught, unclipped_server, with_strategy, write_app
from tests.builders.refusals import assert_refused

pytestmark = pytest.mark.usefixtures("small_working_directory", "searched_as_before")
CLAIM = StatedClaim("add-remove-client", noise_multiplier=1.0)
LOCAL = "LocalDpMod(1.0, 1.0, 3.0, 1e-5)"


def _with_mods(mods: str, names: str) -> str:
    client = CLIENT.replace("ClientApp()", f"ClientApp(mods=[{mods}])")
    return client.replace("import ClientApp", f"import ClientApp\nfrom flwr.client.mod import {names}")


@pytest.mark.parametrize("mod", [LOCAL, "fixedclipping_mod", "adaptiveclipping_mod"])
def test_a_modifier_outside_of_the_masks_is_refused_with_what_flower_raises(mod: str, tmp_path: Path) -> None:
    """The first in a list is outermost: it is handed messages of secure aggregation, which hold no model."""
    name = f"outside_{mod.partition('(')[0].lower()}"
    client = _with_mods(f"{mod}, secaggplus_mod", f"secaggplus_mod, {mod.partition('(')[0]}")
    error = assert_refused(None, lambda: caught(write_app(tmp_path, name, with_strategy("FedAvg()"), client)))
    error_text = str(error)
    assert "KeyError: 'fitins.parameters'" in error_text
    assert f"mods=[secaggplus_mod, {mod.partition('(')[0]}, ...]" in error_text
    assert "\n" not in error_text


def test_the_order_that_a_refusal_advises_is_played(tmp_path: Path) -> None:
    client = _with_mods(f"secaggplus_mod, {LOCAL}", "secaggplus_mod, LocalDpMod")
    captured_strategy = caught(write_app(tmp_path, "advised_order", with_strategy("FedAvg()"), client))
    assert [type(modifier.mod).__name__ for modifier in captured_strategy.mods] == ["LocalDpMod"]
    # This server never masks anything, and its clients fail without masks.
    assert any("no workflow" in remark for remark in captured_strategy.remarks)


def test_a_modifier_that_bears_masks_is_not_played_outside_of_them(tmp_path: Path) -> None:
    client = _with_mods(
        "message_size_mod, secaggplus_mod, fixedclipping_mod", "secaggplus_mod, message_size_mod, fixedclipping_mod"
    )
    captured_strategy = caught(write_app(tmp_path, "bearing_masks", with_strategy("FedAvg()"), client))
    assert [modifier.mod.__name__ for modifier in captured_strategy.mods] == ["fixedclipping_mod"]  # type: ignore[attr-defined]
    assert any("message_size_mod" in remark for remark in captured_strategy.remarks)


@pytest.mark.parametrize(
    "failure", ["raise KeyError('images')", "return Message(Error(1, 'KeyError: images'), reply_to=m)"]
)
def test_a_modifier_that_fails_is_named_and_not_the_strategy(failure: str, tmp_path: Path) -> None:
    mod = f"from flwr.app import Error, Message\n\ndef mine(m, context, call):\n    {failure}\n\napp = "
    client = CLIENT.replace("app = ", mod).replace("ClientApp()", "ClientApp(mods=[mine])")
    error = assert_refused(
        None,
        lambda: review(
            write_app(tmp_path, f"failing_{len(failure)}", with_strategy("FedAvg()"), client),
            ReviewOptions(processes=1),
        ),
    )
    error_text = str(error)
    assert "modifiers" in error_text
    assert "KeyError" in error_text
    assert ("mine" in error_text) is failure.startswith("raise")


RECORDS = {
    "from opacus import PrivacyEngine\nPrivacyEngine()": "Opacus (code.py:1, code.py:2)",
    "import tensorflow_privacy as tfp\n\no = tfp.DPKerasSGDOptimizer(1)": "TensorFlow Privacy (code.py:1, code.py:3)",
    "from jax_privacy.experimental import clipping": "JAX-Privacy (code.py:1)",
    "def f():\n    import dp_accounting.rdp": "dp-accounting (code.py:2)",
    "from fastDP import PrivacyEngine as E": "fastDP (code.py:1)",
    "from private_transformers import PrivacyEngine": "private-transformers (code.py:1)",
    "m = __import__('importlib').import_module('opacus')": "Opacus (code.py:1)",
    "def dp_sgd_step(x): ...": "dp_sgd_step (code.py:1)",
    "class DPSGD: ...": "DPSGD (code.py:1)",
    "x = model.per_sample_gradients(1)": "per_sample_gradients (code.py:1)",
    "for p in ps:\n    p.grad_sample *= 2": "grad_sample (code.py:2)",
    "# PrivacyEngine of opacus": "",
    "'''import opacus'''\nx = 'PrivacyEngine, tensorflow_privacy, dp_sgd'": "",
    "import opacus_like\nfrom .opacus import net": "",
    "def broken(:\n    import opacus": "",
    "clip_norm, sample_rate = 1, 2\nclip_grad_norm_(ps, max_norm=1)": "",
}


@pytest.mark.parametrize("code", RECORDS)
def test_privacy_of_records_is_read_from_code_and_not_from_words(code: str, tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(code)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "other.py").write_text("import opacus")
    assert mentions_phrase(find_record_privacy_mentions(tmp_path)) == RECORDS[code]


def test_settings_that_name_a_strength_of_privacy_are_read_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text("[tool.flwr.app.config]\nlr = 0.1\nnoise-multiplier = 1.5\nfit.target-epsilon = 3\n")
    config = {"lr": 0.1, "noise-multiplier": 1.5, "fit.target-epsilon": 3}
    assert of_settings(file, dict.fromkeys(config, 0.0)) == ()
    phrase = mentions_phrase(of_settings(file, config))
    assert phrase == "noise-multiplier = 1.5 (pyproject.toml:3), fit.target-epsilon = 3 (pyproject.toml:4)"


def _review(result: ClaimAudit, stated: StatedAppClaim | None = None, **changes: Any) -> ReviewResult:
    app_review = ReviewResult(
        "app",
        stated or StatedAppClaim(CLAIM, "here"),
        Verdict.CONSISTENT,
        3,
        3,
        4,
        {"train": 4, "evaluate": 4},
        16,
        ("removed",),
        "none",
        result,
        result,
        (),
        (),
    )
    return replace(app_review, **changes)


def _result(claim: StatedClaim = CLAIM, **changes: Any) -> ClaimAudit:
    return replace(ClaimAudit(claim, Verdict.CONSISTENT, (), (), 40), **changes)


def test_a_guarantee_about_records_is_unseen_and_never_no_guarantee(tmp_path: Path) -> None:
    (tmp_path / "client.py").write_text("from opacus import PrivacyEngine")
    mentions = find_record_privacy_mentions(tmp_path)
    none = StatedAppClaim(None, "nothing is named")
    assert server_verdict(none, _result(), 3, 3) is Verdict.NO_GUARANTEE
    verdict = server_verdict(none, _result(), 3, 3, mentions=mentions)
    app_review = _review(_result(), none, verdict=verdict, of_records=mentions)
    assert verdict is Verdict.NOT_AUDITED
    assert headline(app_review).startswith("Unseen: ")
    assert all(
        "Opacus (client.py:1)" in line
        for line in (headline(app_review), dict(report_lines_of_review(app_review))["Claim"])
    )
    assert "o guarantee" not in headline(app_review)
    result = review_result(app_review)
    path = write_app_page(result, [(app_review.result, ())], True, tmp_path)
    assert "Opacus (client.py:1)" in path.read_text()
    assert review_json(app_review)["of_records"] == [
        {"what": "Opacus", "file": "client.py", "line": 1, "is_library": True}
    ]
    # A claim about clients is judged as ever.
    assert server_verdict(StatedAppClaim(CLAIM, "here"), _result(), 3, 3, mentions=mentions) is Verdict.CONSISTENT


@pytest.mark.parametrize("is_loaded", [True, False])
def test_a_page_opens_with_what_was_not_tried_unless_the_headline_says_what_was_not_loaded(
    is_loaded: bool, tmp_path: Path
) -> None:
    audit = _result(unplayed=("removed",))
    page = write_app_page(review_result(_review(audit)), [(audit, ())], is_loaded, tmp_path).read_text()
    assert (f'<p class="opening">{untried_words(audit)}' in page) is is_loaded


def _beside(result: ClaimAudit, kinds: list[str], **changes: Any) -> str:
    return dict(report_lines_of_review(_review(result, leaks=side_channel_results([result], kinds), **changes)))[
        "Beside the model"
    ]


def test_what_told_nothing_is_said_with_the_trials_that_asked() -> None:
    three = StatedClaim("add-remove-client", epsilon=2.5)
    summaries = {
        "metrics": ScenarioTrialsSummary(460, ("metrics: acc", "array: x")),
        "evaluation": ScenarioTrialsSummary(80, ("form: y",)),
    }
    result = _result(three, trial_summaries=summaries)
    kinds = ["metrics", "evaluation"]
    channel_results = {
        leak.aside: (leak.is_played, leak.trials, leak.share, leak.names)
        for leak in side_channel_results([result], kinds)
    }
    assert channel_results[SideChannel.METRICS] == (True, 460, None, ("acc",))
    assert channel_results[SideChannel.EVALUATION] == (True, 80, None, ())
    assert all(phrase in _beside(result, kinds) for phrase in ("epsilon 2.5 in 460 trials", "80 trials"))


@pytest.mark.parametrize("where", ["unplayed", "untried", "passed_over", "silent", "refused"])
def test_what_was_not_tried_is_not_said_to_tell_nothing(where: str) -> None:
    """The reason may be the time, the budget, no release, or an error in every trial."""
    kinds = ["metrics", "evaluation", "more examples than true", "running statistics, own model"]
    result = _result(
        trial_summaries={kind: ScenarioTrialsSummary(100, ("metrics: loss",)) for kind in kinds},
        **{where: tuple(kinds)},
    )
    beside_line = _beside(result, kinds)
    assert "told nothing" not in beside_line
    assert {
        kind
        for leak in side_channel_results([result], kinds)
        for scenario_names in leak.untried.values()
        for kind in scenario_names
    } == set(kinds)
    assert not any(leak.is_played for leak in side_channel_results([result], kinds))
    assert beside_line.count("not tried") == len(SideChannel)


@pytest.mark.parametrize("verdict", [Verdict.CONSISTENT, Verdict.INCONCLUSIVE])
def test_too_few_trials_to_refute_anything_tell_not_nothing(verdict: Verdict) -> None:
    """Of 25 trials all may be told, and no bound of so few passes what is claimed."""
    kind = "more examples than true"
    small_test = replace(_test(kind, "examples", bound=0.6), ceiling=0.6)
    channel_results = side_channel_results(
        [_result(verdict=verdict, tests=(small_test,), trial_summaries={kind: ScenarioTrialsSummary(85)})], [kind]
    )
    assert [leak.untried for leak in channel_results if leak.aside is SideChannel.EXAMPLES] == [{TOO_FEW: (kind,)}]


def test_what_told_nothing_is_held_to_a_claim_only_where_there_is_one() -> None:
    three = StatedClaim("add-remove-client", epsilon=3.0)
    kind = "many examples"
    result = _result(three, trial_summaries={kind: ScenarioTrialsSummary(60)})
    beside_line = _beside(result, [kind], stated=StatedAppClaim(None, "nothing is named"))
    assert "epsilon 3 in 60 trials" in beside_line


def test_of_two_kinds_about_one_thing_the_one_that_was_not_tried_is_named() -> None:
    kinds = ["many examples", "more examples than true"]
    result = _result(trial_summaries={kinds[0]: ScenarioTrialsSummary(60)}, unplayed=(kinds[1],))
    (channel_result,) = (leak for leak in side_channel_results([result], kinds) if leak.aside is SideChannel.EXAMPLES)
    assert (channel_result.is_played, channel_result.trials) == (True, 60)
    assert list(channel_result.untried.values()) == [(kinds[1],)]
    assert f"not tried: '{kinds[1]}'" in _beside(result, kinds)


@pytest.mark.parametrize(
    ("buffers", "expected_phrase"), [(0, "no buffers"), (None, "was not seen"), (2, "were not tried")]
)
def test_buffers_are_those_of_the_apps_model(buffers: int | None, expected_phrase: str) -> None:
    line = _beside(_result(), [], buffers=buffers, stated=StatedAppClaim(None, "nothing is named"))
    assert expected_phrase in line


def test_whoever_was_not_asked_to_evaluate_is_said_to_be_so_in_the_trial_that_was_watched() -> None:
    assert "asked to evaluate" in _beside(_result(), [], asked={"train": 4, "evaluate": 0})


def _test(kind: str, group: str, right: int = 400, bound: float = 9.0) -> DistinguisherTest:
    distinguisher = Distinguisher(
        kind, group, lambda values: values[:, 0], EpsilonDeltaLimit(1.0, 1e-5), BoundMethod.CLOPPER_PEARSON, 1.0, 0.0
    )
    present = np.arange(400) % 2 == 0
    return DistinguisherTest(
        distinguisher, bound, 0.95, 9.0, 400, 1.0, right, present * 1.0, present, present * 1.0, ()
    )


def test_a_loss_that_only_our_clients_report_is_said_to_be_ours() -> None:
    for is_ours, text in ((True, "(metrics: loss, which"), (False, "(metrics: loss)")):
        result = _result(
            tests=(replace(_test("metrics", "metrics: loss"), is_of_trials_alone=is_ours),),
            trial_summaries={"metrics": ScenarioTrialsSummary(460, ("metrics: loss",))},
        )
        channel_results = side_channel_results([result], ["metrics"])
        assert [(leak.share, leak.by) for leak in channel_results if leak.aside is SideChannel.METRICS] == [
            (1.0, "metrics: loss")
        ]
        assert text in dict(report_lines_of_review(_review(result, leaks=channel_results)))["Beside the model"]


def test_what_an_app_is_known_to_release_is_named_before_what_only_our_clients_report() -> None:
    ours = replace(_test("metrics", "metrics: loss"), is_of_trials_alone=True)
    for tests in ((ours, _test("metrics", "metrics: acc", right=390)), (_test("metrics", "metrics: acc"), ours)):
        told = side_channel_results([_result(tests=tests)], ["metrics"])
        assert next(leak.by for leak in told if leak.aside is SideChannel.METRICS) == "metrics: acc"


def test_a_loss_that_only_our_clients_report_violates_no_claim_of_a_wrapper() -> None:
    """Whether the app's clients report it is not seen; a number that the app asks for is seen to be released."""
    by_loss = _test("removed", "metrics: loss")
    by_loss = replace(by_loss, distinguisher=replace(by_loss.distinguisher, sort=FeatureSort.BESIDE_MODEL))
    of_model = _test("removed", "what was released along it", right=220, bound=0.1)
    claim = StatedAppClaim(CLAIM, "here", is_of_flower=True)
    for is_ours, verdict in ((True, Verdict.INCONCLUSIVE), (False, Verdict.VIOLATED)):
        tests = (replace(by_loss, is_of_trials_alone=is_ours), of_model)
        result = _result(tests=tests, verdict=verdict_of(tests))
        assert result.verdict is verdict
        assert server_verdict(claim, result, 3, 3) is verdict
        first = headline(_review(result, app_claim=claim, verdict=verdict))
        assert ("Violated beside the model: metrics: loss" in first) is not is_ours
        assert ("Inconclusive: metrics: loss" in first) is is_ours


@pytest.mark.parametrize(
    ("is_ours", "multiplier", "verdict", "first"),
    [
        (False, 1.0, Verdict.VIOLATED, "Violated beside the model: metrics: acc"),
        (False, 0.1, Verdict.INCONCLUSIVE, "Inconclusive beside the model: metrics: acc"),
        (True, 1.0, Verdict.INCONCLUSIVE, "Inconclusive as to metrics: acc"),
    ],
)
def test_metrics_that_are_released_without_noise_decide_as_far_as_they_are_seen(
    is_ours: bool, multiplier: float, verdict: Verdict, first: str
) -> None:
    """A number that tells 400 of 400 trials refutes noise 1, and not noise 0.1, which hides next to nothing."""
    by_number = replace(_test("metrics", "metrics: acc"), is_of_trials_alone=is_ours)
    beside = _result(StatedClaim("add-remove-client", epsilon=3.0), tests=(by_number,))
    claim = StatedClaim("add-remove-client", noise_multiplier=multiplier)
    for is_of_flower in (False, True):
        stated = StatedAppClaim(claim, "here", is_of_flower=is_of_flower)
        assert server_verdict(stated, _result(claim), 3, 3, beside=beside) is verdict
        review = _review(_result(claim), app_claim=stated, verdict=verdict, beside=beside)
        assert headline(review).startswith(first)


def test_numbers_beside_a_wrapper_with_edges_are_not_called_violated_if_the_claim_allows_them() -> None:
    claim = StatedClaim("add-remove-client", noise_multiplier=0.1)
    edge = _test("missing reply", "what was released along it")
    of_model = _test("removed", "what was released along it", right=220, bound=0.1)
    result = _result(claim, tests=(edge, of_model), verdict=Verdict.VIOLATED)
    beside = _result(StatedClaim("add-remove-client", epsilon=3.0), tests=(_test("metrics", "metrics: acc"),))
    stated = StatedAppClaim(claim, "here", is_of_flower=True)
    verdict = server_verdict(stated, result, 3, 3, beside=beside)
    assert verdict is Verdict.INCONCLUSIVE
    first = headline(_review(result, app_claim=stated, verdict=verdict, beside=beside))
    assert "Noise and clipping are as claimed" in first
    assert "Inconclusive beside the model: metrics: acc" in first
    assert "Violated" not in first


def test_examples_that_tell_beside_the_model_are_judged_with_the_model() -> None:
    beside = _result(tests=(_test("more examples than true", "metrics: num-examples"),))
    assert server_verdict(StatedAppClaim(CLAIM, "here"), _result(), 3, 3, beside=beside) is Verdict.CONSISTENT


def test_in_a_tie_the_model_itself_is_named_and_not_a_number_that_only_our_clients_report() -> None:
    kinds = ["more examples than true", "many examples"]
    tests = (_test(kinds[0], "evaluation: loss", bound=9.0), _test(kinds[1], "what was released along it"))
    for test_order in (tests, tests[::-1]):
        (channel_result,) = (
            leak
            for leak in side_channel_results([_result(tests=test_order)], kinds)
            if leak.aside is SideChannel.EXAMPLES
        )
        assert (channel_result.share, channel_result.by) == (1.0, tests[1].distinguisher.group)


def test_a_number_that_told_in_another_scenario_is_not_said_to_tell_nothing() -> None:
    """A number is tested once, where it tells most: here where the counts of examples differ, and not the losses."""
    kinds = ["metrics", "more examples than true"]
    summaries = dict.fromkeys(kinds, ScenarioTrialsSummary(460, ("metrics: loss",)))
    for group, share in (("metrics: loss", 1.0), ("what was released along it", None)):
        result = _result(tests=(_test(kinds[1], group, bound=9.0),), trial_summaries=summaries)
        leaks = {leak.aside: leak for leak in side_channel_results([result], kinds)}
        assert (leaks[SideChannel.METRICS].share, leaks[SideChannel.EXAMPLES].share) == (share, 1.0)


def test_trials_on_its_own_model_are_named_only_where_there_were_some() -> None:
    played = dict(report_lines_of_review(_review(_result())))["Played"]
    assert "small model" in played
    assert "none tried" in played
    own_review = _review(_result(tests=(_test("removed", "x"),)), kinds=("removed, own model",))
    assert all(
        phrase in dict(report_lines_of_review(own_review))["Played"]
        for phrase in ("1 scenario", "16 parameters", "up to 400 ")
    )


class Looking(FedAvg):
    """Looks for numbers in replies in every way that Python has."""

    how = ""

    def __init__(self) -> None:
        super().__init__(fraction_evaluate=0.0, train_metrics_aggr_fn=self.added)

    def added(self, replies: Any, _weight: str) -> MetricRecord:
        records = [reply["metrics"] for reply in replies]
        match self.how:
            case "[]":
                return MetricRecord({"sum": sum(record["acc"] for record in records)})
            case "get":
                return MetricRecord({"sum": sum(record.get("acc", 0.0) for record in records)})
            case "in":
                return MetricRecord({"count": len([record for record in records if "acc" in record])})
            case "in keys":
                return MetricRecord({"count": len([record for record in records if "acc" in record.keys()])})  # noqa: SIM118
            case "unbearable":
                return MetricRecord({"sum": float(sum(len(record.get("acc", [])) for record in records))})
        return MetricRecord({})


@pytest.mark.parametrize("lookup", ["[]", "get", "in", "in keys", "unbearable", "nothing"])
def test_numbers_are_offered_however_a_strategy_looks_for_them(lookup: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Looking, "how", lookup)
    probe = probed(AuditedSystem(Looking), CLAIM)
    assert set(probe.system.asked) - {"num-examples"} == ({"acc"} if lookup not in ("nothing", "unbearable") else set())
    assert probe.unoffered == (("acc",) if lookup == "unbearable" else ())


@pytest.mark.long
def test_a_strategy_of_the_old_interface_is_offered_numbers_and_gives_out_all_kinds_of_them() -> None:
    def added(pairs: Any) -> Any:
        values = [float(metrics.get("acc", 0.0)) for _, metrics in pairs]
        return {"one": np.float32(values[0]), "all": values, "by": {"first": values[0]}, "n": len(values)}

    strategy = OldFedAvg(fit_metrics_aggregation_fn=added, initial_parameters=ndarrays_to_parameters([np.ones(3)]))
    system = probed(AuditedSystem(lambda: strategy), CLAIM).system
    assert set(system.asked) == {"acc", "loss", "num-examples"}  # every old evaluation has a loss
    budget = TrialBudget(
        pilot=40, stages=(40,), shares=(1.0,), fewest_tests=1, most_tests=1, deep=1, scout=40, passing_scenarios=1
    )
    result = audit_system(system, CLAIM, budget=budget, include=["metrics"])
    names = {name.removeprefix("metrics: ") for name in result.trial_summaries["metrics"].names}
    assert {"one", "mean of all", "length of all", "by.first", "n"} <= names
    assert result.trial_summaries["metrics"].trials == 80
    assert result.tests[0].right == result.tests[0].trials


def test_the_numbers_of_any_value_are_found() -> None:
    values = {
        "a": np.float32(2),
        "b": [1, 3],
        "c": {"d": (2.0, 4.0), "e": None},
        "f": "text",
        "g": [{"h": 5}, "xy"],
        "i": np.array([[1.0, 2.0]]),
        "j": True,
        "k": [],
    }
    numbers = dict(pair for name, value in values.items() for pair in plain_numbers(name, value))
    assert numbers == {
        "a": 2.0,
        "mean of b": 2.0,
        "length of b": 2.0,
        "mean of c.d": 3.0,
        "length of c.d": 2.0,
        "length of f": 4.0,
        "length of g": 2.0,
        "g[0].h": 5.0,
        "length of g[1]": 2.0,
        "mean of i": 1.5,
        "length of i": 1.0,
        "j": 1.0,
        "length of k": 0.0,
    }


def test_an_update_beyond_the_norm_is_told_with_its_proviso() -> None:
    result = _result(tests=(_test("huge", "along"), _test("removed", "along")))
    causes = {finding.test.distinguisher.kind: finding.cause for finding in findings(result, scenario_texts())}
    assert "--set trust-client-clipping=true" in causes["huge"]
    assert "--set trust-client-clipping=true" not in causes["removed"]


@pytest.mark.long
@pytest.mark.parametrize("is_clipped", [True, False])
def test_clients_that_clip_by_themselves_are_told_how_to_say_so(is_clipped: bool, tmp_path: Path) -> None:
    """The remedy that the cause names: no trial then sends more than the norm, and the claim holds."""
    directory = write_app(tmp_path, f"unclipped_{is_clipped}", unclipped_server())
    trusted = not is_clipped
    wishes = ReviewOptions(processes=1, seconds=1000, rounds=1, clients=4, is_quick=True, trust_client_clipping=trusted)
    app_review = review(directory, wishes)
    assert app_review.verdict is (Verdict.VIOLATED if is_clipped else Verdict.CONSISTENT)
    assert ("--set trust-client-clipping=true" in headline(app_review)) is is_clipped
    assert "Floating-point leak" not in headline(app_review)


def test_the_names_in_secure_aggregation_are_those_of_flower() -> None:
    from flwr.common.secure_aggregation import secaggplus_constants as flower

    assert flower.RECORD_KEY_CONFIGS == client_mods._SETUP_RECORD
    assert client_mods._SETUP[flower.Key.STAGE] == flower.Stage.SETUP
    assert client_mods._SETUP.keys() <= {value for name, value in vars(flower.Key).items() if not name.startswith("_")}
