"""The queries that a run sends besides training: to the insider, to data owners, and for the states of accountants."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import assert_never

from fl_audit.array_types import Floats
from fl_audit.audits.audit import ReleaseQueryKind
from fl_audit.audits.registry import audit_of
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.local_dpsgd import private_steps
from fl_audit.federation.run_plan import RunPlan
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.mechanisms.noise_draws import number_of_directions
from fl_audit.mechanisms.noises.mechanism_noise import NoiseOrigin
from fl_audit.mechanisms.threat_model import Adversary
from fl_audit.released_model.parametric_star import StarSettings
from fl_audit.released_model.star_methods import EpsilonStarLocation
from fl_audit.strategies.epsilon_star_queries import EpsilonStarQueries
from fl_audit.strategies.queries import AccountantStateCollector, RunQueries
from fl_audit.strategies.release_scoring import (
    CanaryScoreCollector,
    InsiderLogOddsCollector,
    InsiderScoreCollector,
    TargetLogOddsCollector,
)
from fl_audit.strategies.round_secrets_log import open_shares
from fl_audit.strategies.secret_draws import SeededChallenger, true_side
from fl_audit.trial_batches import TrialBatch
from fl_audit.verdict.noise_measurement import sampled_places
from fl_audit.verdict.noise_statistics import NoiseStatisticsLayout


def known_noise_seeds(federation: LoadedFederation, challenger: SeededChallenger) -> list[int]:
    """Return the noise seeds that the insider (the adversarial client) knows: its own and its colluders'.

    The list is empty if clients do not add the noise, or if the adversary is the server.
    """
    public = federation.public
    if not public.mechanism.clients_add_noise or public.threat_model.adversary is Adversary.SERVER:
        return []
    return [challenger.noise_seed(client) for client in (federation.insider, *federation.colluders)]


def federated_losses(plan: RunPlan) -> StarSettings | None:
    """Return the settings of Epsilon* without pooling members' losses; None if the server pools them."""
    if plan.config.audit.epsilon_star_losses is not EpsilonStarLocation.FEDERATED:
        return None
    return StarSettings(plan.config.privacy.delta)


def run_queries(
    plan: RunPlan,
    federation: LoadedFederation,
    noise_seeds: Sequence[int],
    wave: Sequence[TrialBatch],
    population: Callable[[TrialBatch, int], Floats],
    challenger: SeededChallenger,
) -> tuple[RunQueries, ...]:
    """Return the queries of a run besides training: for states of accountants, for answers of the insider, and
    for losses.
    """
    round_queries = list[RunQueries]()
    public = plan.federation
    if isinstance(public.mechanism.contribution, PrivateTraining):
        shards = [len(shard) for shard in federation.shards]
        round_queries.append(AccountantStateCollector(plan.evaluated_releases, shards, private_steps(public.mechanism)))
    round_queries += _release_queries(federation, noise_seeds, wave, challenger)
    federated = federated_losses(plan)
    if federated is not None:
        round_queries.append(EpsilonStarQueries(federated, plan.evaluated_releases, wave, public.clients, population))
    return tuple(round_queries)


def _release_queries(
    federation: LoadedFederation, noise_seeds: Sequence[int], wave: Sequence[TrialBatch], challenger: SeededChallenger
) -> list[RunQueries]:
    """Return the queries that send every release to the adversary, in the form that the kind of audit needs.

    The list is empty for audits without such queries.
    """
    public = federation.public
    insider = federation.insider
    match audit_of(public).query(public):
        case ReleaseQueryKind.NOTHING:
            return []
        case ReleaseQueryKind.CANARIES:
            return [CanaryScoreCollector(public, insider, (), wave, federation, challenger)]
        case ReleaseQueryKind.TARGETS:
            return [TargetLogOddsCollector(public, insider, noise_seeds, wave, challenger, knows_others=True)]
        case ReleaseQueryKind.CANDIDATES:
            return [TargetLogOddsCollector(public, insider, noise_seeds, wave, challenger, knows_others=False)]
        case ReleaseQueryKind.SCORES:
            return [InsiderScoreCollector(public, insider, noise_seeds, wave)]
        case ReleaseQueryKind.LOG_ODDS:
            opened = partial(true_side, federation, challenger)
            has_shares = public.mechanism.noise.origin is NoiseOrigin.CLIENTS
            shares = partial(open_shares, federation, challenger) if has_shares else None
            layout = measured_layout(federation)
            return [InsiderLogOddsCollector(public, insider, noise_seeds, wave, layout, opened, shares)]
        case query:
            assert_never(query)


def measured_layout(federation: LoadedFederation) -> NoiseStatisticsLayout:
    """Return the names and shapes of an insider's noise measurements; they follow from model layers and sampling."""
    layout = federation.model.layout
    sides = 3 if federation.public.is_secretly_sampled else 2
    directions = number_of_directions(layout.size)
    return NoiseStatisticsLayout(layout.names, directions, sampled_places(layout), sides, layout.size)
