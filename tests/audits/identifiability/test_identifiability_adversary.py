"""The insider's log-odds against a difference of normal log-densities, from float64 backward passes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from fl_audit.adjacency import Adjacency, NeighbourPair
from fl_audit.audits.identifiability.identifiability_adversary import RoundEvidence, observe
from fl_audit.data.catalogue import DataSpec
from fl_audit.data.partition import PartitionScheme
from fl_audit.federation.federation import Federation
from fl_audit.federation.loaded_federation import LoadedFederation, load_federation
from fl_audit.federation.observed_rounds import ObservedRound
from fl_audit.federation.record_tensors import Examples
from fl_audit.learning.microbatching import GroupedRecords
from fl_audit.learning.model_initialisation import initial_models
from fl_audit.learning.models import ModelSpec
from fl_audit.learning.optimizers import OptimizerState, ServerOptimizer, ServerOptimizerKind, step
from fl_audit.learning.stacked_model import ClippedSums
from fl_audit.mechanisms.contribution import Everybody, FixedClipping
from fl_audit.mechanisms.mechanism import Mechanism
from fl_audit.mechanisms.noises.central import CentralGaussian
from fl_audit.mechanisms.threat_model import InsiderView
from fl_audit.privacy.accounting_enums import SensitivityKind
from tests.builders.refusals import assert_refused
from tests.learning.gradient_truth import clip_and_sum, example_gradients

TRIALS = 5
SGD = ServerOptimizer(ServerOptimizerKind.SGD, 0.5)
MOMENTUM = ServerOptimizer(ServerOptimizerKind.MOMENTUM, 0.2, momentum=0.9)
RELATIONS = (Adjacency.ADD_REMOVE_RECORD, Adjacency.REPLACE_RECORD)
CASES = [(relation, scaling) for relation in RELATIONS for scaling in SensitivityKind]


def weigh_release(
    federation: LoadedFederation, models: Tensor, release: Tensor, batch_trials: int | None = None
) -> RoundEvidence:
    """Weigh a round of which the sums are seen."""
    return observe(federation, ObservedRound(1, (models,), release), batch_trials)


def weigh_models(federation: LoadedFederation, models: list[Tensor], batch_trials: int | None = None) -> RoundEvidence:
    """Weigh a round of which models alone are seen."""
    return observe(federation, ObservedRound(1, tuple(models), None), batch_trials)


def make_federation(
    relation: Adjacency = Adjacency.REPLACE_RECORD,
    scaling: SensitivityKind = SensitivityKind.LOCAL,
    model: str = "adult-mlp",
    optimizer: ServerOptimizer = SGD,
    multiplier: float = 2.0,
) -> LoadedFederation:
    replacing = relation is Adjacency.REPLACE_RECORD
    return load_federation(
        Federation(
            data=DataSpec("breast-cancer"),
            data_seed=1,
            records=12,
            test_records=20,
            population_records=10,
            clients=3,
            partition=PartitionScheme.IID,
            partition_parameters=(),
            pair=NeighbourPair(4, 7 if replacing else None),
            model=model,
            mechanism=Mechanism(
                adjacency=relation,
                clipping=FixedClipping(0.8),
                participation=Everybody(),
                noise=CentralGaussian(multiplier, scaling),
                denominator=12,
                optimizer=optimizer,
            ),
            rounds=4,
            view=InsiderView.UPDATE,
        )
    )


def initial(federation: LoadedFederation, trials: int = TRIALS) -> Tensor:
    shape = federation.model.feature_shape
    return initial_models(ModelSpec(federation.public.model, shape, federation.classes), 6, range(trials))


def _join(*example_sets: Examples) -> Examples:
    return Examples(
        torch.cat([examples.features for examples in example_sets]),
        torch.cat([examples.labels for examples in example_sets]),
    )


def true_sums(federation: LoadedFederation, models: Tensor) -> tuple[Tensor, Tensor]:
    """Return f(D) and f(D') in float64, each summed over its own whole training set."""
    keep = torch.arange(len(federation.training.labels)) != federation.public.pair.index
    other_examples = Examples(federation.training.features[keep], federation.training.labels[keep])
    neighbour = other_examples if federation.replacement is None else _join(other_examples, federation.replacement)
    with_x, without_x = (
        clip_and_sum(
            example_gradients(federation.model.template, models, data.features, data.labels),
            federation.public.mechanism.clipping_norm,
        )
        for data in (federation.training, neighbour)
    )
    return with_x, without_x


def true_sigma(federation: LoadedFederation, with_x: Tensor, without_x: Tensor) -> NDArray[np.float64]:
    mechanism = federation.public.mechanism
    worst = {Adjacency.ADD_REMOVE_RECORD: 0.8, Adjacency.REPLACE_RECORD: 1.6}[mechanism.adjacency]
    local: NDArray[np.float64] = (with_x - without_x).norm(dim=1).numpy()
    return mechanism.noise_multiplier * (
        local if mechanism.scaling is SensitivityKind.LOCAL else np.full(len(local), worst)
    )


def make_release(federation: LoadedFederation, models: Tensor, bits: list[int], seed: int = 3) -> Tensor:
    with_x, without_x = true_sums(federation, models)
    sigma = torch.from_numpy(true_sigma(federation, with_x, without_x)).unsqueeze(1)
    noise = torch.randn(with_x.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    chosen = torch.where(torch.tensor(bits, dtype=torch.bool).unsqueeze(1), with_x, without_x)
    return (chosen + sigma * noise).float()


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("model", ["logistic", "adult-mlp"])
@pytest.mark.parametrize(("relation", "scaling"), CASES)
def test_log_odds_are_differences_of_log_densities(relation: Adjacency, scaling: SensitivityKind, model: str) -> None:
    federation = make_federation(relation, scaling, model)
    models = initial(federation)
    with_x, without_x = true_sums(federation, models)
    sigma = true_sigma(federation, with_x, without_x)
    release = make_release(federation, models, [1, 0, 1, 0, 1])
    densities = [
        stats.norm.logpdf(release.double().numpy(), loc=mean.numpy(), scale=sigma[:, None]).sum(axis=1)
        for mean in (with_x, without_x)
    ]
    evidence = weigh_release(federation, models, release)
    assert evidence.increment.dtype == evidence.local_sensitivity.dtype == np.float64
    np.testing.assert_allclose(evidence.increment, densities[0] - densities[1], rtol=1e-5, atol=1e-5)
    expected = (with_x - without_x).norm(dim=1).numpy()
    np.testing.assert_allclose(evidence.local_sensitivity, expected, rtol=1e-5)
    assert float(expected.min()) > 1e-3


@pytest.mark.parametrize(("relation", "scaling"), CASES)
def test_the_means_themselves_give_half_mu_squared(relation: Adjacency, scaling: SensitivityKind) -> None:
    federation = make_federation(relation, scaling)
    models = initial(federation)
    with_x, without_x = true_sums(federation, models)
    mu = (with_x - without_x).norm(dim=1).numpy() / true_sigma(federation, with_x, without_x)
    if scaling is SensitivityKind.LOCAL:
        np.testing.assert_allclose(mu, 0.5, rtol=1e-12)
    for release, expected in ((with_x, mu**2 / 2), (without_x, -(mu**2) / 2), ((with_x + without_x) / 2, 0 * mu)):
        np.testing.assert_allclose(weigh_release(federation, models, release).increment, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("scaling", list(SensitivityKind))
def test_swapping_the_neighbours_turns_the_sign(scaling: SensitivityKind) -> None:
    federation = make_federation(Adjacency.REPLACE_RECORD, scaling)
    assert federation.replacement is not None
    training = Examples(federation.training.features.clone(), federation.training.labels.clone())
    training.features[4], training.labels[4] = federation.replacement.features[0], federation.replacement.labels[0]
    swapped = replace(federation, training=training, replacement=federation.differing)
    models = initial(federation)
    release = make_release(federation, models, [1, 0, 1, 0, 1])
    evidence = weigh_release(federation, models, release)
    mirrored = weigh_release(swapped, models, release)
    assert np.array_equal(mirrored.increment, -evidence.increment)
    assert np.array_equal(mirrored.local_sensitivity, evidence.local_sensitivity)


@pytest.mark.parametrize(("relation", "scaling"), CASES)
def test_mirroring_the_release_turns_the_sign(relation: Adjacency, scaling: SensitivityKind) -> None:
    federation = make_federation(relation, scaling)
    models = initial(federation)
    release = make_release(federation, models, [0, 1, 0, 1, 0]).double()
    with_x, without_x = true_sums(federation, models)
    evidence = weigh_release(federation, models, release).increment
    mirrored = weigh_release(federation, models, with_x + without_x - release).increment
    np.testing.assert_allclose(mirrored, -evidence, rtol=1e-4, atol=1e-5)


def _without_difference(federation: LoadedFederation) -> LoadedFederation:
    """Put x itself in the place of x."""
    return replace(federation, replacement=federation.differing)


@pytest.mark.parametrize("scaling", list(SensitivityKind))
@pytest.mark.parametrize("size", [0.0, 1.0, 1e6])
def test_neighbours_that_do_not_differ_tell_nothing(scaling: SensitivityKind, size: float) -> None:
    federation = _without_difference(make_federation(Adjacency.REPLACE_RECORD, scaling))
    models = initial(federation)
    evidence = weigh_release(federation, models, torch.full_like(models, size))
    assert np.array_equal(evidence.increment, np.zeros(TRIALS))
    assert np.array_equal(evidence.local_sensitivity, np.zeros(TRIALS))


@pytest.mark.parametrize("scaling", list(SensitivityKind))
def test_a_trial_whose_units_are_dead_tells_nothing_and_spoils_no_other(scaling: SensitivityKind) -> None:
    federation = make_federation(Adjacency.ADD_REMOVE_RECORD, scaling)
    models = initial(federation)
    views = federation.model.layout.views(models)
    last = federation.model.layout.names[-1]
    assert views[last].shape == (TRIALS, 2)
    views[last][2] = torch.tensor([1e4, 0.0]) if int(federation.differing.labels[0]) == 0 else torch.tensor([0.0, 1e4])
    release = torch.ones_like(models)
    evidence = weigh_release(federation, models, release)
    assert evidence.increment[2] == evidence.local_sensitivity[2] == 0
    assert np.isfinite(evidence.increment).all()
    assert (evidence.local_sensitivity[[0, 1, 3, 4]] > 0).all()


def test_under_the_floor_noise_stays_and_evidence_fades() -> None:
    federation = make_federation()
    near = Examples(federation.differing.features * (1 + 1e-4), federation.differing.labels)
    federation = replace(federation, replacement=near)
    models = initial(federation)
    with_x, without_x = true_sums(federation, models)
    floor = 1e-4 * federation.public.mechanism.clipping_norm
    sensitivity = (with_x - without_x).norm(dim=1).numpy()
    assert (sensitivity < floor).all()
    mu = sensitivity / (federation.public.mechanism.noise_multiplier * floor)
    evidence = weigh_release(federation, models, with_x)
    opposite = weigh_release(federation, models, without_x)
    np.testing.assert_allclose(evidence.local_sensitivity, sensitivity, rtol=0.05)  # float32 gradients, nearly equal
    np.testing.assert_allclose(evidence.increment - opposite.increment, mu**2, rtol=0.1)


@pytest.mark.parametrize(("relation", "scaling"), CASES)
def test_evidence_of_a_trial_does_not_depend_on_its_company(relation: Adjacency, scaling: SensitivityKind) -> None:
    federation = make_federation(relation, scaling)
    models = initial(federation)
    release = make_release(federation, models, [1, 0, 1, 0, 1])
    together = weigh_release(federation, models, release)
    first = weigh_release(federation, models[:2], release[:2], batch_trials=TRIALS)
    assert np.array_equal(first.increment, together.increment[:2])
    assert np.array_equal(first.local_sensitivity, together.local_sensitivity[:2])
    alone = weigh_release(federation, models[4:], release[4:])
    np.testing.assert_allclose(alone.increment, together.increment[4:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("relation", RELATIONS)
def test_every_sum_works_in_the_shapes_of_the_batch(relation: Adjacency, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bits may agree by luck in other shapes, so the shapes themselves are checked."""
    federation = make_federation(relation)
    models = initial(federation)
    batch_sizes: list[int | None] = []
    original = federation.model.clipped_sums

    def noting(
        models: Tensor,
        records: GroupedRecords,
        norm: float,
        batch_trials: int | None = None,
        taking_part: Tensor | None = None,
    ) -> ClippedSums:
        batch_sizes.append(batch_trials)
        return original(models, records, norm, batch_trials, taking_part)

    monkeypatch.setattr(federation.model, "clipped_sums", noting)
    weigh_release(federation, models[:2], models[:2], batch_trials=TRIALS)
    weigh_models(federation, [models[:2], models[:2] + 0.1], batch_trials=TRIALS)
    assert batch_sizes == [TRIALS] * (4 if relation is Adjacency.ADD_REMOVE_RECORD else 6)


def _play(federation: LoadedFederation, rounds: int) -> tuple[list[Tensor], list[Tensor]]:
    """Return all models, the initial ones first, and all releases."""
    models = [initial(federation)]
    releases = []
    state = OptimizerState()
    for index in range(rounds):
        releases.append(make_release(federation, models[-1], [1, 0, 1, 0, 1], seed=index))
        gradient = releases[-1] / federation.public.mechanism.denominator
        moved, state = step(federation.public.mechanism.optimizer, models[-1], gradient, state)
        models.append(moved)
    return models, releases


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("optimizer", [SGD, MOMENTUM], ids=["sgd", "momentum"])
@pytest.mark.parametrize(("relation", "scaling"), CASES)
def test_models_tell_what_releases_tell(
    relation: Adjacency, scaling: SensitivityKind, optimizer: ServerOptimizer
) -> None:
    federation = make_federation(relation, scaling, optimizer=optimizer)
    models, releases = _play(federation, 4)
    for index, release in enumerate(releases):
        evidence = weigh_release(federation, models[index], release)
        model_history = models[max(0, index + 2 - optimizer.models_to_invert) : index + 2]
        recovered = weigh_models(federation, model_history)
        assert np.array_equal(recovered.local_sensitivity, evidence.local_sensitivity)
        # Rounding to a thousandth of sigma in every coordinate moves the log-odds by a thousandth of mu or so.
        tolerance = (
            3e-3 * evidence.local_sensitivity / federation.public.mechanism.server_scale(evidence.local_sensitivity)
        )
        assert (np.abs(recovered.increment - evidence.increment) <= tolerance).all()
        assert np.abs(evidence.increment).max() > 0.05


def _rounding_share(federation: LoadedFederation) -> float:
    """Return ulp(theta) n / (eta sigma), root mean square over coordinates, of the worst trial after one round."""
    models, _ = _play(federation, 1)
    with_x, without_x = true_sums(federation, models[0])
    largest = np.maximum(np.abs(models[0].numpy()), np.abs(models[1].numpy()))
    ulp = np.spacing(largest).astype(np.float64)
    mechanism = federation.public.mechanism
    rounding = np.sqrt((ulp**2).mean(axis=1)) * mechanism.denominator / mechanism.optimizer.learning_rate
    return float((rounding / true_sigma(federation, with_x, without_x)).max())


@pytest.mark.parametrize("kind", [ServerOptimizerKind.SGD, ServerOptimizerKind.MOMENTUM])
def test_refuses_models_whose_rounding_hides_the_release(kind: ServerOptimizerKind) -> None:
    # The share goes as 1 / eta, so this is the learning rate at which it is a thousandth of sigma.
    critical = 1e-3 * _rounding_share(make_federation(optimizer=ServerOptimizer(kind, 1e-3))) / 1e-3
    assert critical < 1e-2
    enough, too_little = (
        make_federation(optimizer=ServerOptimizer(kind, factor * critical)) for factor in (1.05, 0.95)
    )
    weigh_models(enough, _play(enough, 1)[0])
    assert_refused(r"release: .* use view = 'update'", lambda: weigh_models(too_little, _play(too_little, 1)[0]))


def test_a_trial_without_difference_is_not_refused_for_rounding() -> None:
    federation = _without_difference(make_federation(optimizer=ServerOptimizer(ServerOptimizerKind.SGD, 1e-9)))
    models = initial(federation)
    evidence = weigh_models(federation, [models, models.clone()])
    assert isinstance(evidence, RoundEvidence)
    assert np.array_equal(evidence.increment, np.zeros(TRIALS))


def test_innovations_are_standard_normal() -> None:
    """With each bit, (L - +-mu^2/2) / mu over 2000 noise draws; the seed is fixed, false alarms were 1 in 10^6."""
    federation = make_federation(model="logistic", multiplier=0.7)
    models = initial(federation, 1)
    with_x, without_x = true_sums(federation, models)
    sigma = true_sigma(federation, with_x, without_x)
    model_copies = models.expand(2000, -1).contiguous()
    noise = torch.randn(2000, models.shape[1], generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    mu = 1 / 0.7
    for mean, sign in ((with_x, 1), (without_x, -1)):
        log_odds = weigh_release(federation, model_copies, mean + float(sigma[0]) * noise).increment
        assert stats.kstest((log_odds - sign * mu**2 / 2) / mu, "norm").pvalue > 1e-6
