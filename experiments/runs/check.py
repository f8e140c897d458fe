"""What can be said of a run before it is played: its data, its promise, what it could find, and what it would take."""

from dataclasses import asdict, dataclass
from typing import Any, assert_never

from fl_audit.arrays import finite
from fl_audit.data.catalogue import load_source
from fl_audit.data.records import Caution, ColumnUse
from fl_audit.experiments.names import Engine
from fl_audit.experiments.runs.cautions import cautions_of
from fl_audit.experiments.runs.footprint import Footprint, footprint
from fl_audit.experiments.runs.plan import AuditPlan
from fl_audit.experiments.runs.probe import Probe, probe
from fl_audit.experiments.runs.run import require_playable
from fl_audit.federation.game import Game, load_game
from fl_audit.mechanisms.contribution import Everybody, FixedCohort, PoissonSampling
from fl_audit.verdict.family import DETECTION_POWER
from fl_audit.verdict.noise_estimate import NOTHING_PLANNED, PlannedLimits, planned_limits


@dataclass(frozen=True)
class Sizes:
    """How many records there really are, where a configuration names the most that are wanted."""

    records: int  # of the training set D
    test_records: int
    population_records: int  # of the population sample
    clients: int
    smallest_client: int  # records of D that the smallest client holds
    largest_client: int  # records of D that the largest client holds
    classes: int
    features: int  # numbers of one record
    description: str  # what was read, in a line
    parameters: int  # parameters of the model that are trained
    columns: tuple[ColumnUse, ...]  # what each column of a table became; empty where the data are no table


@dataclass(frozen=True)
class Check:
    """What a configuration comes to."""

    plan: AuditPlan  # the resolved plan, with the promise
    sizes: Sizes  # what there is
    cautions: tuple[Caution, ...]  # what the user of the data should look at
    limits: PlannedLimits | None  # what the run could find; None where no insider plays or nothing is promised
    probe: Probe | None  # what it would take; None where that was not asked for
    footprint: Footprint  # what it would leave on disk


def check_plan(plan: AuditPlan, with_probe: bool = True, engine: Engine = Engine.LOCAL) -> Check:
    """Look at everything that a run will need, and play a few rounds of it; nothing is written.

    Parameters
    ----------
    plan, with_probe
        What is to be done, and whether a few rounds are played.
    engine
        Where the run is to be played, for an estimate of the whole command.

    Raises
    ------
    InputError
        If data, model or settings are such that the run would be refused.
    FederationError
        If a client fails in the rounds that are played.
    """
    require_playable(plan)
    game, source, wanted = load_game(plan.public), load_source(plan.public.data), footprint(plan)
    cautions = (*cautions_of(plan), *([Caution(wanted.caution)] if wanted.caution else []))
    shards = [len(shard) for shard in game.shards]
    sizes = Sizes(
        records=plan.public.records,
        test_records=len(game.test.labels),
        population_records=len(game.population.labels),
        clients=plan.public.clients,
        smallest_client=min(shards),
        largest_client=max(shards),
        classes=game.classes,
        features=int(source.pool.features[0].size),
        description=source.description,
        parameters=game.model.layout.size,
        columns=source.columns,
    )
    tried = probe(plan, engine) if with_probe else None
    return Check(plan, sizes, cautions, _limits(plan, game), tried, wanted)


def _limits(plan: AuditPlan, game: Game) -> PlannedLimits | None:
    public, promise, law = plan.public, plan.guarantee, plan.public.law
    if promise is None or not public.with_insider:
        return None
    if not law.weighs_exactly:
        return NOTHING_PLANNED
    # The share of the rounds in which D and D' differ, to an insider's knowledge.
    match law.participation:
        case FixedCohort() as cohorts:
            share = cohorts.participations(public.rounds) / public.rounds
        case Everybody() | PoissonSampling():
            share = law.sampling_rate if law.is_sampled and public.standpoint.sees_participation else 1.0
        case _:
            assert_never(law.participation)
    parameters = game.model.layout.size if game.offers_meter and not public.plays_membership else None
    return planned_limits(promise, plan.config.audit.worlds, public.rounds * share, parameters)


def check_json(found: Check) -> dict[str, Any]:
    """Return a check as JSON values; what does not apply, and what is infinite, is null."""
    plan, promise, limits = found.plan, found.plan.guarantee, found.limits
    return {
        "data": {
            "name": plan.public.data.name,
            **asdict(found.sizes),
            "columns": [str(column) for column in found.sizes.columns],
            "look_at": [caution.text for caution in found.cautions],
        },
        "model": plan.public.model,
        "rounds": plan.public.rounds,
        "worlds": plan.config.audit.worlds,
        "worlds_per_batch": plan.config.run.worlds_per_batch,
        "keep_releases": plan.config.run.keep_releases,
        "writes": asdict(found.footprint) | {"total": found.footprint.total},
        "guarantee": None
        if promise is None
        else {
            "epsilon": finite(promise.epsilon),
            "delta": promise.delta,
            "accountant": str(promise.accountant),
            "noise_multiplier": promise.noise_multiplier,
            "adjacency": str(promise.adjacency),
            "belief_bound": promise.belief_bound,
            "advantage_bound": promise.advantage_bound_exact,
        },
        "limits": None
        if limits is None
        else {
            "judged": "log-odds" if plan.public.law.weighs_exactly else "scores",
            "limit_of_detection": finite(limits.limit_of_detection),
            "noise_short_along_record": limits.noise_short,
            "noise_short_in_all": limits.noise_short_in_all,
            "probability": DETECTION_POWER,
            "conclusive": limits.conclusive,
            "worlds_needed": limits.worlds_needed,
        },
        "estimate": None if found.probe is None else asdict(found.probe),
    }
