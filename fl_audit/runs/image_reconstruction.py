"""Reconstruction of a run's training images by an attacker, at the run's noise level and at other noise levels."""

import math
from collections.abc import Callable

import numpy as np
import torch

from fl_audit.array_types import Integers
from fl_audit.audits.reconstruction import image_attacks
from fl_audit.audits.reconstruction.reconstruction_metrics import (
    ImageTargets,
    NoiseLevelGuarantee,
    TrueAndReconstructedImages,
    reconstructions_by_noise,
)
from fl_audit.audits.reconstruction.update_function import UpdateFunction
from fl_audit.errors import require
from fl_audit.federation.initial_weights import starting_models
from fl_audit.federation.loaded_federation import LoadedFederation, load_federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.learning.local_training import local_batches
from fl_audit.mechanisms.contribution import LocalTraining, PrivateTraining
from fl_audit.privacy.gaussian import gdp_mu
from fl_audit.privacy.reconstruction_bounds import as_add_remove
from fl_audit.randomness import Purpose, generator

EPSILONS = (math.inf, 100.0, 10.0, 1.0)
"""Levels of epsilon that are compared with the run's own guarantee."""
DRAWING_STEPS = image_attacks.USUAL.iterations
"""Number of search steps, which are needed only without noise; with noise, images are computed directly."""
_MOST_AT_ONCE = 64
"""Largest number of a client's records that are sought in its update."""
_SECONDS = 120.0


def require_drawable(plan: RunPlan) -> None:
    """Raise `InputError` with the reason if reconstructed images are configured but not possible in a planned run."""
    pictures = plan.config.audit.reconstruct_samples
    public = plan.federation
    if pictures is None:
        return
    federation = load_federation(public)
    contribution = public.mechanism.contribution
    features = federation.training.features
    setting_text = f"reconstruct-samples = {pictures}"
    public_steps = not isinstance(contribution, PrivateTraining)
    require(public_steps, f"{setting_text} of clients that train privately: accepted are 'dp-fedsgd' and 'dp-fedavg'")
    with_loss = f"{setting_text} of training with class-weights or label-smoothing"
    require(public.mechanism.loss.is_plain, f"{with_loss}: accepted is the plain cross-entropy")
    bounded = plan.guarantee is None or plan.guarantee.reconstruction_bound(0.5) is not None
    require(
        bounded, f"{setting_text} and nothing is claimed to every record: accepted are guarantees of global sensitivity"
    )
    plain = public.local_randomizer is None and federation.core is None
    require(plain, f"{setting_text} of records that are randomised, or read by a frozen core: accepted are neither")
    owners = _records_of_contributions(federation)
    most_images = owners.size
    images_each = owners.shape[1]
    alike = "" if images_each == 1 else " of clients with equally many"
    require(
        pictures <= most_images, f"{setting_text} of {most_images} records{alike}: accepted are at most all of them"
    )
    together = f"{setting_text} out of updates of {images_each} records"
    require(images_each <= _MOST_AT_ONCE, f"{together}: accepted are at most {_MOST_AT_ONCE}")
    count = federation.population.count
    require(
        images_each <= count, f"{together}, and population-records = {count}: accepted are at least as many of others"
    )
    of_arrays = f"{setting_text} of records that are texts or other named arrays, and no pictures"
    require(not federation.inputs, f"{of_arrays}: leave it out")
    image_attacks.require_pictures(federation.model.feature_shape, float(features.min()), float(features.max()))
    if (
        images_each > 1
        or isinstance(contribution, LocalTraining)
        or not image_attacks.reads_first_layer(federation.model)
    ):
        image_attacks.require_last_bias(federation.model, federation.classes)
    _shared(plan, federation, images_each)


def reconstruct_images(plan: RunPlan, on_step: Callable[[int], None]) -> TrueAndReconstructedImages:
    """Return an attacker's reconstructions of the first training images, at several noise levels.

    The attacker sees a noised contribution (of a record, or of a client with all its records) to the initial model of
    trial 0, and knows all other contributions.
    """
    federation = load_federation(plan.federation)
    audit = plan.config.audit
    assert audit.reconstruct_samples is not None, "pictures are asked for"
    owners = _records_of_contributions(federation)
    images_each = owners.shape[1]
    records = torch.from_numpy(owners[: math.ceil(audit.reconstruct_samples / images_each)])
    most_others = image_attacks.MOST_OTHERS
    population = federation.population
    candidates = federation.test.features[: most_others - 1]
    victims = ImageTargets(federation.training.features[records], federation.training.labels[records], candidates)
    levels, guarantee = _levels(plan, min(1.0, images_each / (len(candidates) + 1)))
    images = image_attacks.PopulationImages(population.features[:most_others], population.labels[:most_others])
    descent = image_attacks.DescentSettings(seconds=_SECONDS)
    shared = _shared(plan, federation, images_each)

    def draws(number: int) -> np.random.Generator:
        return generator(federation.public.data_seed, Purpose.DRAWING, round=number)

    reconstructions = reconstructions_by_noise(shared, victims, images, levels, draws, descent, lambda _: on_step(1))
    return TrueAndReconstructedImages(
        victims.pictures.flatten(0, 1).cpu().numpy(), tuple(reconstructions), levels.index(guarantee)
    )


def _records_of_contributions(federation: LoadedFederation) -> Integers:
    """Return the indices of the records behind each contribution, shape (contributions, records per contribution).

    With local training, a contribution is the update of a client that has as many records as client 0. Otherwise it is
    the gradient of one record.
    """
    if not isinstance(federation.public.mechanism.contribution, LocalTraining):
        return np.arange(federation.training.count)[:, np.newaxis]
    return np.stack([shard for shard in federation.shards if len(shard) == len(federation.shards[0])])


def _shared(plan: RunPlan, federation: LoadedFederation, images_each: int) -> UpdateFunction:
    start = starting_models(federation, plan.config.model.initial, plan.config.model.seed, [0])[0].to(
        federation.public.device
    )
    mechanism = federation.public.mechanism
    norm = federation.public.mechanism.clipping_norm
    clipping = norm if math.isfinite(norm) else None
    if not isinstance(mechanism.contribution, LocalTraining):
        return UpdateFunction(federation.model, start, clipping)
    # Each client has an order of its own. To the attacker, who knows them, they are all as good as the first one's.
    order = generator(federation.public.data_seed, Purpose.LOCAL_ORDER, round=1, client=0)
    schedule = mechanism.contribution.schedule
    return UpdateFunction(federation.model, start, clipping, schedule, local_batches(images_each, schedule, order))


def _levels(plan: RunPlan, chance: float) -> tuple[list[NoiseLevelGuarantee], NoiseLevelGuarantee]:
    """Return the noise levels in ascending order of noise, and the run's own level among them.

    `chance` is the probability of guessing the right image without a release.
    """
    guarantee = plan.guarantee
    if guarantee is None:
        level_of_run = NoiseLevelGuarantee(math.inf, math.inf, 1.0)
        return [level_of_run], level_of_run
    alone = as_add_remove(guarantee.claim)
    halves = alone.noise_multiplier != guarantee.claim.noise_multiplier
    bound = guarantee.reconstruction_bound(chance)
    assert bound is not None, "every record is claimed something"
    # An attacker that does not know in which rounds the record took part adds them all up: a share of them holds it.
    level_of_run = NoiseLevelGuarantee(guarantee.epsilon, alone.full_participation_mu * alone.sampling_rate, bound)
    ladder = [
        NoiseLevelGuarantee.gaussian(epsilon, gdp_mu(epsilon, guarantee.delta) / (2 if halves else 1), chance)
        if math.isfinite(epsilon)
        else NoiseLevelGuarantee(epsilon, math.inf, 1.0)
        for epsilon in EPSILONS
    ]
    return sorted([*ladder, level_of_run], key=lambda guarantee: -guarantee.mu), level_of_run
