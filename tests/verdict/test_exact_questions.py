"""Tests of the exact questions: each finds its breach in a real federation, and honest federations break none."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from torch import Tensor

from fl_audit.array_types import Floats
from fl_audit.federation.run_plan import RunPlan
from fl_audit.learning.stacked_model import ClippedSums, StackedModel
from fl_audit.mechanisms.noises.mechanism_noise import NoiseOrigin
from fl_audit.privacy.guarantee import derive_guarantee
from fl_audit.runs.run import HONEST, ClientAppAndStrategy
from fl_audit.strategies.received_contributions import UnnoisedRoundSum
from fl_audit.strategies.secret_draws import SeededChallenger
from fl_audit.strategies.trial_batch_strategy import TrialBatchStrategy
from fl_audit.trial_batches import TrialBatch
from fl_audit.verdict.exact_questions import ExactQuestion
from tests.builders.runs import run_locally
from tests.validation.breach_kinds import BREACHES
from tests.validation.engine_runs import breach_plan, honest_plans, parties_of
from tests.validation.opened_breaches import ADAPTIVE, DISTRIBUTED, OPENED_BREACHES, SAMPLED

SMALL: dict[str, dict[str, Any]] = {
    "training": {"rounds": 3},
    "audit": {"trials": 6, "epsilon-star": False, "membership": False},
    "run": {"trials-per-batch": 6},
}


def plan_of(**changes: dict[str, Any]) -> RunPlan:
    sections = {*SMALL, *changes}
    return breach_plan(3, **{name: SMALL.get(name, {}) | changes.get(name, {}) for name in sections})


def played(directory: Path, plan: RunPlan, parties: ClientAppAndStrategy = HONEST) -> dict[str, Any]:
    return run_locally(plan, directory / "run", parties=parties).summary


def broken(summary: dict[str, Any]) -> dict[str, float]:
    return {answer["name"]: answer["measured"] for answer in summary["exact"] if answer["violated"]}


class _OnAGrid(TrialBatchStrategy):
    """A server that rounds the sums before it adds noise to them."""

    def noise(self, batch: TrialBatch, server_round: int, total: Tensor, sigma: Floats) -> Tensor:
        return super().noise(batch, server_round, torch.round(total * 5).div_(5), sigma)


class _TrueSize(TrialBatchStrategy):
    """A server that divides by the number of records that are there, which is another one with D and with D'."""

    def _read(self, *of: Any) -> UnnoisedRoundSum:
        read = super()._read(*of)
        return replace(read, total=read.total * 100 / 99)


class _ReadsOneTwice(TrialBatchStrategy):
    """A server that counts one client's contribution twice, as if the client had sent it so."""

    def _read(self, *of: Any) -> UnnoisedRoundSum:
        read = super()._read(*of)
        twice = replace(read.sent[1], values=2 * read.sent[1].values)
        total = read.total + torch.from_numpy(read.sent[1].values)
        return replace(read, sent={**read.sent, 1: twice}, total=total)


class _Trained(TrialBatchStrategy):
    """A server whose initial models are not the public ones."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Sequence[Message]:
        messages = super().configure_train(server_round, arrays, config, grid)
        if server_round == 1:
            for batch in self.batches:
                self.transcripts[batch.name].models[-1][1] += 1e-3
        return list(messages)


class _WrongBits(TrialBatchStrategy):
    """A server that counts the bit of a client that is not there."""

    def _read(self, *of: Any) -> UnnoisedRoundSum:
        read = super()._read(*of)
        return replace(read, centred_bits=read.centred_bits + 0.5)


class _SeedOfItsOwn(TrialBatchStrategy):
    """A server whose noise anybody can draw again, since its seed stands in its code."""

    def noise(self, batch: TrialBatch, server_round: int, total: Tensor, sigma: Floats) -> Tensor:
        normals = [
            np.random.default_rng((42, trial, server_round)).standard_normal(self.parameters) for trial in batch.trials
        ]
        return total.add_(torch.from_numpy(np.stack(normals) * sigma[:, None]).float())


class _GeneratorOfItsOwn(TrialBatchStrategy):
    """A server with a generator that begins with the same seed in every run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.source = np.random.default_rng(42)

    def noise(self, batch: TrialBatch, server_round: int, total: Tensor, sigma: Floats) -> Tensor:
        return total.add_(torch.from_numpy(self.source.standard_normal(total.shape) * sigma[:, None]).float())


@pytest.fixture(autouse=True)
def _this_module_can_be_imported_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find this module by its name, as the module of a user's strategy is found."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2])


_OF_MODULE = np.random.default_rng(42)
_SECRET_OF_MODULE = np.random.default_rng()


class _GeneratorOfTheModule(TrialBatchStrategy):
    """A server that draws from a generator of its module, which begins with the same seed in every process."""

    def noise(self, batch: TrialBatch, server_round: int, total: Tensor, sigma: Floats) -> Tensor:
        return total.add_(torch.from_numpy(_OF_MODULE.standard_normal(total.shape) * sigma[:, None]).float())


class _SecretGeneratorOfTheModule(TrialBatchStrategy):
    """A server that draws from a generator of its module, which begins with a secret seed in every process."""

    def noise(self, batch: TrialBatch, server_round: int, total: Tensor, sigma: Floats) -> Tensor:
        return total.add_(torch.from_numpy(_SECRET_OF_MODULE.standard_normal(total.shape) * sigma[:, None]).float())


class _SamplesOfItsOwn(TrialBatchStrategy):
    """A server whose samples follow from a seed that everybody knows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        public = SeededChallenger(42)
        self.challenger.participation = public.participation  # type: ignore[method-assign]


@pytest.mark.few_cases(4)
@pytest.mark.parametrize(
    ("strategy", "changes", "question"),
    [
        (_OnAGrid, {"privacy": {"noise-multiplier": 4.0, "clipping-norm": 0.1}}, ExactQuestion.MOVED),
        (_TrueSize, {}, ExactQuestion.SUM),
        (_Trained, {}, ExactQuestion.START),
        (_WrongBits, ADAPTIVE, ExactQuestion.BITS),
        (_SeedOfItsOwn, {}, ExactQuestion.SECOND_SEED),
        (_GeneratorOfItsOwn, {}, ExactQuestion.SECOND_SEED),
        (_GeneratorOfTheModule, {}, ExactQuestion.SECOND_SEED),
        (_SamplesOfItsOwn, SAMPLED, ExactQuestion.SECOND_SEED),
    ],
)
def test_a_server_that_breaks_one_claim_is_found(
    strategy: type[TrialBatchStrategy], changes: dict[str, dict[str, Any]], question: ExactQuestion, tmp_path: Path
) -> None:
    summary = played(tmp_path, plan_of(**changes), ClientAppAndStrategy(strategy=strategy))
    assert set(broken(summary)) == {str(question)}
    assert summary["verdict"] == "violated"


def test_a_contribution_that_the_server_changes_is_not_put_down_to_its_client(tmp_path: Path) -> None:
    summary = played(tmp_path, plan_of(), ClientAppAndStrategy(strategy=_ReadsOneTwice))
    assert broken(summary).keys() == {str(ExactQuestion.SUM)}
    text = next(one["found"] for one in summary["exact"] if one["violated"])
    assert "what the server summed" in text
    assert "client" not in text


def test_a_generator_of_a_module_with_a_secret_seed_is_not_accused(tmp_path: Path) -> None:
    state = _OF_MODULE.bit_generator.state
    summary = played(tmp_path, plan_of(), ClientAppAndStrategy(strategy=_SecretGeneratorOfTheModule))
    assert broken(summary) == {}
    seed_answer = next(answer for answer in summary["exact"] if answer["name"] == str(ExactQuestion.SECOND_SEED))
    assert seed_answer["checked"] == "noise"
    assert _OF_MODULE.bit_generator.state == state


def test_modules_that_cannot_be_imported_anew_are_named(tmp_path: Path) -> None:
    class InAFunction(_GeneratorOfTheModule):
        """A server whose class cannot be imported."""

    summary = played(tmp_path, plan_of(), ClientAppAndStrategy(strategy=InAFunction))
    seed_answer = next(answer for answer in summary["exact"] if answer["name"] == str(ExactQuestion.SECOND_SEED))
    assert "not generators that stand in a module" in seed_answer["checked"]


def test_generators_of_libraries_that_a_module_seeds_are_found_and_given_back(tmp_path: Path) -> None:
    """The module seeds the generator of NumPy where it is imported, as scripts do."""
    module = tmp_path / "seeded_server.py"
    module.write_text(
        "import numpy as np, torch\n"
        "from fl_audit.strategies.trial_batch_strategy import TrialBatchStrategy\n"
        "np.random.seed(42)\n"
        "class Seeded(TrialBatchStrategy):\n"
        "    def noise(self, batch, server_round, total, sigma):\n"
        "        return total + torch.from_numpy(np.random.standard_normal(total.shape) * sigma[:, None]).float()\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        seeded = import_module("seeded_server")
        violations = broken(played(tmp_path, plan_of(), ClientAppAndStrategy(strategy=seeded.Seeded)))
        assert sys.modules.pop("seeded_server") is seeded
    assert violations.keys() == {str(ExactQuestion.SECOND_SEED)}


@pytest.mark.parametrize("name", ["one client does not clip", "clipping norm 10 % too large"])
def test_clients_that_clip_at_another_norm_are_found(name: str, tmp_path: Path) -> None:
    breach = next(candidate for candidate in BREACHES if candidate.name == name)
    violations = broken(played(tmp_path, plan_of(), parties_of(breach)))
    assert violations.keys() == {str(ExactQuestion.SUM)}
    assert violations[ExactQuestion.SUM] > 1


@pytest.mark.parametrize("name", ["all shares of the noise from one seed", "two clients draw from one seed"])
def test_shares_that_were_sent_are_those_of_their_clients(name: str, tmp_path: Path) -> None:
    breach = next(item for item in OPENED_BREACHES if item.name == name)
    assert breach.strategy is not None
    summary = played(tmp_path, plan_of(**DISTRIBUTED), ClientAppAndStrategy(strategy=breach.strategy))
    assert broken(summary).keys() == {str(ExactQuestion.SUM)}
    assert "client" in next(item["found"] for item in summary["exact"] if item["violated"])


def test_contributions_that_are_too_long_everywhere_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients, insider and challenger all clip alike, so that no sum is wrong."""
    honest = StackedModel.clipped_sums

    def longer(self: StackedModel, *arguments: Any, **options: Any) -> ClippedSums:
        sums = honest(self, *arguments, **options)
        return sums._replace(total=1.05 * sums.total)

    monkeypatch.setattr(StackedModel, "clipped_sums", longer)
    violations = broken(played(tmp_path, plan_of()))
    assert violations[ExactQuestion.LENGTH] == pytest.approx(1.05, abs=1e-4)


def test_shards_that_overlap_count_records_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fl_audit.federation.loaded_federation as module

    honest = module.shards_of

    def overlapping(*of: Any) -> tuple[Any, ...]:
        first, *other_shards = honest(*of)
        return np.sort(np.append(first, other_shards[-1][:2])), *other_shards

    plan = plan_of()
    monkeypatch.setattr(module, "shards_of", overlapping)
    module.load_federation.cache_clear()
    try:
        violations = broken(played(tmp_path, plan))
    finally:
        module.load_federation.cache_clear()
    assert 0.5 < violations[ExactQuestion.SUM] < 2.01


def test_an_epsilon_that_forgets_something_is_found(tmp_path: Path) -> None:
    plan = plan_of(**{name: dict(section_values) for name, section_values in ADAPTIVE.items()})
    assert plan.guarantee is not None
    claim = plan.guarantee.claim
    z = plan.federation.mechanism.noise_multiplier
    without_bits = claim.noise_multiplier
    assert without_bits is not None
    assert without_bits < z
    wrong = {
        "bits": claim.with_noise(z / without_bits),
        "delta": replace(claim, delta=10 * claim.delta),
        "rounds": claim.with_rounds(2),
    }
    for name, forgotten in wrong.items():
        summary = played(tmp_path / name, replace(plan, guarantee=derive_guarantee(forgotten)))
        assert broken(summary).keys() == {str(ExactQuestion.EPSILON)}, name


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("number", range(28))
def test_honest_federations_break_nothing(number: int, tmp_path: Path) -> None:
    plan = list(honest_plans(28, tmp_path, seed=5))[number]
    small = plan.config.changed(audit={"trials": 4}, run={"trials_per_batch": 4})
    summary = played(tmp_path, replace(plan, config=small))
    assert broken(summary) == {}
    answered_names = {answer["name"] for answer in summary["exact"] if not answer["not_asked"]}
    assert {str(ExactQuestion.SUM), str(ExactQuestion.START), str(ExactQuestion.EPSILON)} <= answered_names
    assert str(ExactQuestion.SECOND_SEED) in answered_names
    adds_noise = plan.federation.mechanism.noise.origin is NoiseOrigin.SERVER
    assert (str(ExactQuestion.STEP) in answered_names) == adds_noise
