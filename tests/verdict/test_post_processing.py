"""Tests of changes after correct noise: they are told apart and never accused, and breaches under them are found."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from flwr.app import Array, ArrayRecord, Message, MetricRecord
from flwr.clientapp import ClientApp
from torch import Tensor

from fl_audit.array_packing import pack, unpack
from fl_audit.errors import FederationError
from fl_audit.runs.replay import replay
from fl_audit.runs.run import HONEST, ClientAppAndStrategy
from fl_audit.strategies.noised_sums import _exchanged, _moved_within, is_sum_with_noise
from fl_audit.strategies.received_contributions import UnnoisedRoundSum
from fl_audit.strategies.trial_batch_strategy import TrialBatchStrategy
from fl_audit.trial_batches import TrialBatch
from fl_audit.verdict.exact_questions import ExactAnswer, ExactQuestion
from fl_audit.verdict.findings_verdict import VerdictFinding
from fl_audit.verdict.verdict import Verdict
from tests.builders.clients import app_with_mechanism
from tests.builders.runs import run_locally
from tests.builders.settings import changed_settings
from tests.validation import post_processing
from tests.validation.engine_runs import breach_plan
from tests.validation.opened_breaches import ADAPTIVE, DISTRIBUTED, SAMPLED, LastBitOfRelease
from tests.validation.post_processing import (
    MODEL_RULES,
    RANDOM_ROUNDING,
    RULES,
    SOURCES,
    changing_models,
    changing_sums,
    rounding_at_random,
    with_noise_of,
    with_rule,
)

MEMBERSHIP: dict[str, dict[str, Any]] = {
    "audit": {"kind": "membership", "targets": 20},
    "privacy": {"adjacency": "add-remove-record"},
}
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "models are seen": {"training": {"learning-rate": 100.0}, "audit": {"view": "model"}},
    "correlated noise": {"privacy": {"noise": "tree", "accountant": "pld"}},
    "momentum": {"training": {"optimizer": "momentum"}},
    "sampled": SAMPLED,
    "adaptive": ADAPTIVE,
    "noise that follows D and D'": {"privacy": {"sensitivity": "local"}},
    "membership": MEMBERSHIP,
}


def verdict_of(
    directory: Path,
    strategy: type[TrialBatchStrategy] | None,
    trials: int = 40,
    batch: int = 40,
    client_app: ClientApp = HONEST.client_app,
    **changes: dict[str, Any],
) -> VerdictFinding:
    settings: dict[str, dict[str, Any]] = {
        "training": {"rounds": 5},
        "audit": {"trials": trials},
        "run": {"trials-per-batch": batch, "keep-releases": 2},
    }
    plan = breach_plan(3, **changed_settings(settings, changes))
    parties = ClientAppAndStrategy(client_app, HONEST.strategy if strategy is None else strategy)
    contents = run_locally(plan, directory / "run", parties=parties)
    finding = contents.find(VerdictFinding)
    assert finding is not None
    return finding


def step_of(finding: VerdictFinding, question: ExactQuestion = ExactQuestion.STEP) -> ExactAnswer:
    return next(answer for answer in finding.judged.exact if answer.question is question)


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("name", RULES)
def test_changes_after_correct_noise_are_not_accused(name: str, tmp_path: Path) -> None:
    finding = verdict_of(tmp_path, with_rule(RULES[name]))
    assert finding.verdict is not Verdict.VIOLATED
    assert "after the noise" in step_of(finding).text


def without_second_seed(verdict: VerdictFinding) -> VerdictFinding:
    """Return a verdict without its speed, and without the answer that says which generators began anew."""
    answers = [answer for answer in verdict.judged.exact if answer.question is not ExactQuestion.SECOND_SEED]
    return replace(verdict, seconds_needed=None, judgement=replace(verdict.judged, exact=tuple(answers)))


def test_a_step_that_changes_nothing_changes_nothing(tmp_path: Path) -> None:
    runs = {"own": with_rule(lambda noised, sigma: noised), "ours": None}
    verdicts = [verdict_of(tmp_path / name, strategy) for name, strategy in runs.items()]
    assert without_second_seed(verdicts[0]) == without_second_seed(verdicts[1])
    for table in ("trials", "rounds", "residuals"):
        custom_table, ours = (pd.read_parquet(tmp_path / name / "run" / f"{table}.parquet") for name in runs)
        pd.testing.assert_frame_equal(custom_table, ours, check_exact=True)


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("name", RULES)
def test_too_little_noise_is_found_under_every_change(name: str, tmp_path: Path) -> None:
    finding = verdict_of(tmp_path, with_rule(RULES[name], 0.7))
    assert finding.verdict is Verdict.VIOLATED
    assert not step_of(finding).is_asked


@pytest.mark.parametrize("strategy", [post_processing.RoundedBySecret, post_processing.TargetPushed, LastBitOfRelease])
def test_changes_that_follow_the_secret_are_found(strategy: type[TrialBatchStrategy], tmp_path: Path) -> None:
    """The last bit of one number is found too, which no test of the noise sees."""
    finding = verdict_of(tmp_path, strategy, trials=60, batch=60)
    assert finding.verdict is Verdict.VIOLATED
    assert not step_of(finding).is_kept


def test_a_rule_of_its_own_for_every_trial_is_not_called_the_secret(tmp_path: Path) -> None:
    finding = verdict_of(tmp_path, post_processing.DitheredByTrial, trials=60, batch=60)
    assert step_of(finding).is_kept
    assert not step_of(finding).is_asked


def test_a_sum_that_is_clamped_before_the_noise_is_no_post_processing(tmp_path: Path) -> None:
    assert not step_of(verdict_of(tmp_path, post_processing.ClampedBefore)).is_asked


def test_what_rounding_leaves_over_may_be_carried_into_the_next_round(tmp_path: Path) -> None:
    finding = verdict_of(tmp_path, post_processing.WithState)
    assert finding.verdict is not Verdict.VIOLATED
    assert step_of(finding).is_asked


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_mechanism_may_be_post_processed(variant: str, tmp_path: Path) -> None:
    """Projection changes the length of noise, and the log-odds of the stored releases are those of the run."""
    finding = verdict_of(tmp_path, with_rule(RULES["projected to a length"]), **VARIANTS[variant])
    assert finding.verdict is not Verdict.VIOLATED
    assert "after the noise" in step_of(finding).text
    if variant != "membership":
        agreement = replay(tmp_path / "run").agreement(tmp_path / "run")
        assert agreement is not None
        assert agreement.agrees


def test_one_secret_in_every_batch_leaves_the_verdict_open(tmp_path: Path) -> None:
    """Trials that are played alone cannot show whether a change depends on the secret."""
    finding = verdict_of(tmp_path, with_rule(RULES["projected to a length"]), trials=4, batch=1)
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert step_of(finding).is_open


def test_exchanged_trials_stand_in_the_places_of_other_secrets() -> None:
    secrets = np.array([[1], [0], [0], [1], [1]])
    order, has_secrets = _exchanged(secrets)
    assert has_secrets
    assert sorted(order.tolist()) == list(range(5))
    assert (secrets[order.numpy()] != secrets).sum() == 4
    assert not _exchanged(np.ones((3, 2), dtype=np.int64))[1]


def test_few_trials_of_a_side_cannot_show_that_a_rule_follows_the_secret() -> None:
    secrets = np.arange(40)[:, None] % 2
    order = _moved_within(secrets)
    assert order is not None
    np.testing.assert_array_equal(secrets[order.numpy()], secrets)
    assert (order.numpy() != np.arange(40)).all()
    assert _moved_within(secrets[:31]) is None
    assert _moved_within(np.hstack([secrets, secrets])) is None


def is_in_the_noise(finding: VerdictFinding) -> bool:
    """Return whether a test of the noise refutes the claim, and no exact question does."""
    return finding.verdict is Verdict.VIOLATED and all(answer.is_kept for answer in finding.judged.exact)


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("source", SOURCES)
def test_noise_that_is_drawn_elsewhere_is_tested_as_it_is_released(source: str, tmp_path: Path) -> None:
    honest = verdict_of(tmp_path / "honest", with_noise_of(SOURCES[source]))
    assert honest.verdict is not Verdict.VIOLATED
    assert honest.judged.tests
    assert is_in_the_noise(verdict_of(tmp_path / "broken", with_noise_of(SOURCES[source], 0.7)))


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("source", SOURCES)
def test_changes_after_noise_that_is_drawn_elsewhere_are_named_and_not_accused(
    source: str, rule: str, tmp_path: Path
) -> None:
    for share in (1.0, 0.7):
        finding = verdict_of(tmp_path / str(share), with_noise_of(SOURCES[source], share, RULES[rule]))
        assert finding.verdict is Verdict.INCONCLUSIVE
        assert "is not a sum with noise" in step_of(finding).reason


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("rule", RULES)
def test_a_change_in_its_own_method_is_told_apart_wherever_the_noise_is_drawn(rule: str, tmp_path: Path) -> None:
    source = SOURCES["new generators"]
    honest = verdict_of(tmp_path / "honest", changing_sums(RULES[rule], with_noise_of(source)))
    assert honest.verdict is not Verdict.VIOLATED
    assert honest.judged.tests
    broken = changing_sums(RULES[rule], with_noise_of(source, 0.7))
    assert is_in_the_noise(verdict_of(tmp_path / "broken", broken))


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("rounding_kind", RANDOM_ROUNDING)
def test_rounding_at_random_is_named_and_not_accused(rounding_kind: str, tmp_path: Path) -> None:
    honest = verdict_of(tmp_path / "honest", rounding_at_random(rounding_kind))
    assert honest.verdict is Verdict.INCONCLUSIVE
    assert step_of(honest).is_open
    assert is_in_the_noise(verdict_of(tmp_path / "broken", rounding_at_random(rounding_kind, 0.7)))


def with_less_noise(share: float) -> ClientApp:
    """Return an app whose clients add a share of the noise that is claimed."""
    return app_with_mechanism(lambda claimed: claimed.with_multiplier(share * claimed.noise_multiplier))


LOCAL: dict[str, dict[str, Any]] = {"privacy": {"noise": "local"}, "audit": {"adversary": "server"}}


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("noise", [DISTRIBUTED, LOCAL], ids=["shares", "local"])
@pytest.mark.parametrize("rule", RULES)
def test_sums_to_which_clients_added_noise_may_be_changed(
    rule: str, noise: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    finding = verdict_of(tmp_path / "honest", changing_sums(RULES[rule]), **noise)
    assert finding.verdict is not Verdict.VIOLATED
    assert "after the noise" in step_of(finding).text
    agreement = replay(tmp_path / "honest" / "run").agreement(tmp_path / "honest" / "run")
    assert agreement is not None
    assert agreement.agrees
    app = with_less_noise(0.7)
    broken = verdict_of(tmp_path / "broken", changing_sums(RULES[rule]), client_app=app, **noise)
    assert broken.verdict is Verdict.VIOLATED
    assert broken.judged.broken


def test_sums_that_are_changed_as_they_are_read_are_named_and_not_accused(tmp_path: Path) -> None:
    class Rounding(TrialBatchStrategy):
        def _read(self, *of: Any) -> UnnoisedRoundSum:
            read = super()._read(*of)
            return replace(read, total=read.total.bfloat16().float())

    finding = verdict_of(tmp_path, Rounding, **DISTRIBUTED)
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert "is not a sum with noise" in step_of(finding).reason


MODEL_VIEW: dict[str, dict[str, Any]] = {"training": {"learning-rate": 100.0}, "audit": {"view": "model"}}
MOMENTUM: dict[str, dict[str, Any]] = {
    "training": {"learning-rate": 100.0, "optimizer": "momentum"},
    "audit": {"view": "model"},
}
VIEWS = {"update": {}, "model": MODEL_VIEW, "momentum": MOMENTUM}


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("rule", MODEL_RULES)
def test_models_may_be_changed_after_the_step(rule: str, view: str, tmp_path: Path) -> None:
    directory = tmp_path / "honest"
    finding = verdict_of(directory, changing_models(MODEL_RULES[rule]), **VIEWS[view])
    assert finding.verdict is not Verdict.VIOLATED
    assert "the models after" in step_of(finding, ExactQuestion.MODELS).text
    agreement = replay(directory / "run").agreement(directory / "run")
    assert agreement is not None
    assert agreement.agrees
    less = with_rule(lambda noised, sigma: noised, 0.7)
    broken = verdict_of(tmp_path / "broken", changing_models(MODEL_RULES[rule], less), **VIEWS[view])
    assert is_in_the_noise(broken)


@pytest.mark.parametrize(
    ("strategy", "question", "changes"),
    [
        (post_processing.ModelsOfTheSecret, ExactQuestion.MODELS, {}),
        (post_processing.SumsOfTheSecret, ExactQuestion.STEP, {}),
        (post_processing.SumsOfTheSecret, ExactQuestion.STEP, DISTRIBUTED),
    ],
)
def test_changes_in_their_own_methods_that_follow_the_secret_are_found(
    strategy: type[TrialBatchStrategy], question: ExactQuestion, changes: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    finding = verdict_of(tmp_path, strategy, trials=60, batch=60, **changes)
    assert finding.verdict is Verdict.VIOLATED
    assert not step_of(finding, question).is_kept


def test_models_that_are_changed_where_the_audit_does_not_see_it_end_the_run(tmp_path: Path) -> None:
    class Rounding(TrialBatchStrategy):
        def aggregate_train(
            self, server_round: int, replies: Iterable[Message]
        ) -> tuple[ArrayRecord | None, MetricRecord | None]:
            arrays, metrics = super().aggregate_train(server_round, replies)
            assert arrays is not None
            rounded = {name: unpack(array).round(2) for name, array in arrays.items()}
            return ArrayRecord({name: Array(*pack(models)) for name, models in rounded.items()}), metrics

    with pytest.raises(FederationError, match="accepted are changes in 'post_process_models'"):
        verdict_of(tmp_path, Rounding)


@pytest.mark.parametrize(("size", "sigma"), [(3, 0.5), (650, 4.0), (5000, 1e-3)])
def test_steps_that_add_noise_are_told_from_others(size: int, sigma: float) -> None:
    rng = np.random.default_rng(3)
    batch = TrialBatch(0, 0, 4)
    deviations = np.full(4, sigma)
    total = torch.from_numpy(rng.standard_normal((4, size))).float()

    def noised(sums: Tensor) -> Tensor:
        return sums + sigma * torch.from_numpy(rng.standard_normal((4, size))).float()

    column = torch.full((4, 1), sigma)
    assert is_sum_with_noise(noised, batch, 1, total, deviations)
    assert is_sum_with_noise(lambda sums: 0.5 * (noised(sums) - sums) + sums, batch, 1, total, deviations)
    fixed_noise = sigma * torch.from_numpy(rng.standard_normal((4, size))).float()
    sums_with_noise = {
        "noise on a grid": lambda sums: sums + torch.round((noised(sums) - sums) / sigma) * sigma,
        "sums on a grid": lambda sums: torch.round(sums / (sigma / 5)) * (sigma / 5) + fixed_noise,
    }
    for name, step in sums_with_noise.items():
        assert is_sum_with_noise(step, batch, 1, total, deviations), name
    other_steps = {
        **{name: partial(lambda rule, sums: rule(noised(sums), column), rule) for name, rule in RULES.items()},
        "scaled": lambda sums: 1.01 * noised(sums),
        "clamped before": lambda sums: noised(sums.clamp(-sigma, sigma)),
    }
    for name, step in other_steps.items():
        assert not is_sum_with_noise(step, batch, 1, total, deviations), name
