"""From a plan and the tables of its run to what the report says: the facts that the sections of a report start from."""

from dataclasses import replace
from typing import Any

import numpy as np

from experiments.runs.pairs import looked_at
from experiments.runs.plan import AuditPlan
from fl_audit.adjacency import Unit
from fl_audit.evidence.finished_run import FinishedRun, RunFacts
from fl_audit.evidence.inversion import Drawn
from fl_audit.evidence.run_tables import Provenance, RunTables, Timing, Unprotected
from fl_audit.evidence.star.epsilon_star import StarSettings
from fl_audit.game.canaries import canary_facts
from fl_audit.game.crafted import CraftedMeasures, measured
from fl_audit.game.game import load_game
from fl_audit.game.initial_weights import starting_models
from fl_audit.game.record_pair import record_claim
from fl_audit.privacy.beliefs import Sensitivities
from fl_audit.privacy.guarantee import Guarantee, guarantee
from fl_audit.report.finding import RunContents
from fl_audit.report.sections.registry import report_contents


def summarise(
    plan: AuditPlan,
    tables: RunTables,
    timing: dict[str, Any],
    provenance: Provenance | None = None,
    unprotected: Unprotected | None = None,
    drawn: Drawn | None = None,
    looks: tuple[int, ...] = (),
) -> RunContents:
    """Return what a finished run found: the numbers of every finding, and the content of `summary.json` among them.

    Parameters
    ----------
    plan, tables
        What was promised and played, and what came out.
    timing
        Seconds, and the engine.
    provenance
        Where the run comes from; None where that was not noted.
    unprotected
        What the same training without privacy is worth; None where no such run was named.
    drawn
        The pictures that were drawn of its records, if any.
    looks
        After how many worlds it was judged, this time the last.
    """
    facts = replace(run_facts(plan, drawn), looks=looks)
    run = FinishedRun(facts, tables, Timing.of_json(timing), provenance, unprotected)
    return report_contents(replace(run, facts=replace(run.facts, guarantee=_promise_kept_by(run))))


def _promise_kept_by(run: FinishedRun) -> Guarantee | None:
    """Return the promise, with belief bounds for adaptive sensitivities where noise was raised to its floor.

    Noise that follows the local sensitivity gives every round the same signal-to-noise ratio, but not under its floor.
    """
    promise = run.facts.guarantee
    if promise is None or promise.claim.sensitivities is Sensitivities.ADAPTIVE or run.has_exact_final_law:
        return promise
    return guarantee(replace(promise.claim, sensitivities=Sensitivities.ADAPTIVE))


def run_facts(plan: AuditPlan, drawn: Drawn | None = None) -> RunFacts:
    """Return what a report says about a plan, without the challenger's seed.

    Parameters
    ----------
    plan
        What was played.
    drawn
        The pictures that were drawn of its records; None where none were.
    """
    audit, privacy = plan.config.audit, plan.config.privacy
    configuration = plan.config.as_dict()
    configuration["run"].pop("seed", None)
    return RunFacts(
        game=plan.public,
        guarantee=plan.guarantee,
        prior=privacy.prior,
        confidence=audit.confidence,
        neighbour=_neighbour_text(plan),
        star=StarSettings(privacy.delta, audit.epsilon_star_cut) if audit.epsilon_star else None,
        configuration=configuration,
        record_claim=None if plan.public.randomiser is None else record_claim(load_game(plan.public)),
        crafted=_crafted(plan),
        commonest=_commonest(plan),
        canaries=canary_facts(load_game(plan.public)),
        drawn=drawn,
    )


def _commonest(plan: AuditPlan) -> float:
    """Return the share of the most frequent class among the test records."""
    labels = load_game(plan.public).test_records.labels
    return float(np.bincount(labels).max() / len(labels))


def _crafted(plan: AuditPlan) -> CraftedMeasures | None:
    if plan.public.pair.crafted is None:
        return None
    game, start = load_game(plan.public), plan.config.model.initial
    models = starting_models(game, start, plan.config.model.seed, looked_at(start))
    return measured(game, models.to(plan.public.device))


def _neighbour_text(plan: AuditPlan) -> str:
    audit = plan.config.audit
    rank = "" if audit.neighbour_rank is None else f" (rank {audit.neighbour_rank})"
    law, pair = plan.public.law, plan.public.pair
    if plan.public.exactly_one:
        many, seed = plan.public.targets, plan.public.data_seed
        if plan.public.candidate_column is not None:
            values = f"one of {many} values of {plan.public.candidate_column}"
            return f"{law.adjacency}, record {pair.index} with {values} in each world, data seed {seed}"
        return f"{law.adjacency}, one of {many} candidates in each world, data seed {seed}"
    if plan.public.plays_membership:
        return f"{law.adjacency}, one of {plan.public.targets} targets in each world, data seed {plan.public.data_seed}"
    which = f" is client {pair.index}" if law.unit is Unit.CLIENT else ""
    if pair.crafted is not None:
        which = f" in the place of record {pair.index}"
    return f"{law.adjacency}, neighbour {audit.neighbour}{rank}{which}, data seed {plan.public.data_seed}"
