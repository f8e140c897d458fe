"""The contents of a run's report, computed from the run's plan and tables."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fl_audit.audits.canaries.canary_contributions import canary_facts
from fl_audit.audits.reconstruction.reconstruction_metrics import TrueAndReconstructedImages
from fl_audit.audits.sections import report_contents
from fl_audit.federation.crafted_records import CraftedMeasures, measure_crafted_record
from fl_audit.federation.findings import Findings
from fl_audit.federation.finished_run import FinishedRun, GroupSizes, group_sizes
from fl_audit.federation.initial_weights import starting_models
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.federation.locally_randomised_records import record_claim
from fl_audit.federation.run_plan import RunPlan
from fl_audit.federation.run_tables import NonPrivateAccuracy, Provenance, RunTables, Timing
from fl_audit.privacy.guarantee import Guarantee, derive_guarantee
from fl_audit.privacy.identifiability_bounds import SignalToNoiseAdaptivity
from fl_audit.report.report_elements import ReportContents, SectionError
from fl_audit.runs.neighbour_pairs import trials_to_craft_on
from fl_audit.runs.plan_warnings import most_records, report_lines


def summarise(
    plan: RunPlan,
    tables: RunTables,
    timing: dict[str, Any],
    provenance: Provenance | None = None,
    accuracy: NonPrivateAccuracy | None = None,
    images: TrueAndReconstructedImages | None = None,
    looks: tuple[int, ...] = (),
    errors: Sequence[SectionError] = (),
) -> ReportContents:
    """Return the contents of a finished run's report: all findings, and the values of `summary.json`.

    `looks`: Empty stands for a single verdict at the end. `errors`: What could not be computed before.
    """
    federation = load_federation(plan.federation)
    of_audit = [finding for finding in (canary_facts(federation), images) if finding is not None]
    run = FinishedRun(
        plan,
        tables,
        Timing.of_json(timing),
        provenance,
        accuracy,
        record_claim=None if plan.federation.local_randomizer is None else record_claim(federation),
        crafted=_crafted(plan),
        commonest=federation.test_records.largest_class,
        of_audit=Findings({type(finding): finding for finding in of_audit}),
        looks=looks,
        look_at=report_lines(plan),
        most_records=most_records(plan),
        group_sizes=_group_sizes(plan),
    )
    judged = replace(run, plan=replace(plan, guarantee=_guarantee_of(run)))
    return report_contents(judged, earlier_errors=errors)


def _guarantee_of(run: FinishedRun) -> Guarantee | None:
    """Return the guarantee of a run, with the belief bounds that its rounds justify; None without a claim.

    Noise that follows the local sensitivity gives every round the same signal-to-noise ratio, but not where it was
    raised to its floor: there the belief bounds are those for adaptive sensitivities.
    """
    guarantee = run.plan.guarantee
    if guarantee is None or run.has_exact_final_distribution:
        return guarantee
    if guarantee.claim.sensitivities is not SignalToNoiseAdaptivity.FIXED:
        return guarantee
    return derive_guarantee(replace(guarantee.claim, sensitivities=SignalToNoiseAdaptivity.ADAPTIVE))


def _crafted(plan: RunPlan) -> CraftedMeasures | None:
    """Return the measured influence of the crafted record on the models; None if no record was crafted."""
    if plan.federation.pair.crafted is None:
        return None
    federation = load_federation(plan.federation)
    start = plan.config.model.initial
    models = starting_models(federation, start, plan.config.model.seed, trials_to_craft_on(start))
    return measure_crafted_record(federation, models.to(plan.federation.device))


def _group_sizes(plan: RunPlan) -> GroupSizes:
    """Return the largest numbers of records per client and per user, and of users per client, in D.

    Without known users, a column that looks like an identifier of persons stands for them.
    """
    sizes = group_sizes(load_federation(plan.federation))
    largest = most_records(plan)
    # As far as columns tell: where none names the users, the one that looks like it says how many records they have.
    return sizes if sizes.records_of_user is not None or largest == 1 else replace(sizes, records_of_user=largest)
