"""Comparison of adversaries on the same trials, which tests that more knowledge only ever helps.

Both adversaries of a comparison look at the same federation with the same noise. What counts is the mean probability
with which an adversary is right, given all that it knows.
"""

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.table import Table
from safetensors.torch import load_file

from fl_audit.adjacency import Adjacency, Unit
from fl_audit.array_types import Floats
from fl_audit.audits.identifiability.identifiability_adversary import log_likelihood_ratio
from fl_audit.experiments.studies.study_commands import table_of
from fl_audit.federation.contributions import RoundContext
from fl_audit.federation.hypotheses import sums_of
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.mechanisms.noises.central import CentralGaussian
from fl_audit.mechanisms.noises.distributed import DistributedGaussian
from fl_audit.mechanisms.threat_model import ThreatModel
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.replay import stored_rounds
from fl_audit.runs.run import run_audit
from fl_audit.statistics.advantage import mean_interval
from fl_audit.statistics.interval_estimates import EstimateWithConfidence
from tests.validation.guarantee_evidence import chance_of_being_right
from tests.validation.guarantee_settings import Combination, plan_of, write_records

_SEED, _CONFIDENCE = 77, 0.95
_ALARM = 0.999  # confidence of the interval that has to lie under 0 for less knowledge to count as better


class KnowledgeComparison(NamedTuple):
    """Two adversaries at one federation."""

    name: str  # the additional knowledge of the first
    more: Combination  # the federation as the adversary with more knowledge sees it; the releases are the same
    less: Combination  # the federation as the adversary with less knowledge sees it
    noise_multiplier: float  # z
    # Numbers of colluders of the first and of the second adversary; None takes those of the combinations.
    colluders: tuple[int, int] | None = None
    subtracts: bool = True  # whether the second subtracts its own share of the noise


class Compared(NamedTuple):
    """The result of a comparison."""

    comparison: KnowledgeComparison  # the comparison
    more: float  # mean probability of being right of the adversary that knows more
    less: float  # mean probability of being right of the adversary that knows less
    difference: EstimateWithConfidence  # mean of the paired differences, with its interval
    refuted_high: float  # upper end of the interval that would prove that more knowledge hurts

    def problems(self) -> list[str]:
        """Return the contradictions to the claim that more knowledge helps."""
        comparison = self.comparison
        return (
            [f"{comparison.more}: {comparison.name} hurts, by {self.difference.value:.4f}"]
            if self.refuted_high < 0
            else []
        )


def comparisons(is_quick: bool) -> list[KnowledgeComparison]:
    """Return all comparisons, or those of one adjacency."""
    comparison_list = []
    for adjacency in (Adjacency.ADD_REMOVE_CLIENT,) if is_quick else Adjacency:
        of_unit = partial(Combination, "dp-fedsgd" if adjacency.unit is Unit.RECORD else "dp-fedavg", adjacency)
        shares = of_unit(noise="distributed")
        local = of_unit(noise="local")
        at_server = of_unit(noise="local", adversary="server")
        observed_sampling = of_unit("sampled, seen")
        secret = of_unit("sampled in secret")
        comparison_list += [
            KnowledgeComparison("its own share of the noise", shares, shares, 3.0, (0, 0), subtracts=False),
            KnowledgeComparison("the share of 1 colluder", shares, shares, 3.0, (1, 0)),
            KnowledgeComparison("the shares of 4 colluders, not of 1", shares, shares, 3.0, (4, 1)),
            KnowledgeComparison("when the target takes part", observed_sampling, secret, 1.2),
            KnowledgeComparison("single contributions, not sums", at_server, local, 3.0),
        ]
    return comparison_list


def compare(comparison: KnowledgeComparison, trials: int) -> Compared:
    """Play a federation once for each adversary, with the same seed, and compare their beliefs."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        records = directory / "records.npz"
        write_records(records)
        target = {"noise-multiplier": comparison.noise_multiplier}
        informed_plan, ignorant_plan = (
            _seen_from(plan_of(insider_view, records, trials, _SEED, target), comparison.colluders, index)
            for index, insider_view in enumerate((comparison.more, comparison.less))
        )
        insider_view = run_audit(informed_plan, directory / "more", Engine.LOCAL, with_report=False).run.log_odds
        if comparison.subtracts:
            ignorant_log_odds = run_audit(
                ignorant_plan, directory / "less", Engine.LOCAL, with_report=False
            ).run.log_odds
        else:
            ignorant_log_odds = _without_own(informed_plan, directory / "more")
    right = chance_of_being_right(insider_view)
    less_right = chance_of_being_right(ignorant_log_odds)
    intervals = [mean_interval(right - less_right, level, -0.5, 0.5) for level in (_CONFIDENCE, _ALARM)]
    return Compared(comparison, float(right.mean()), float(less_right.mean()), intervals[0], intervals[1].high)


def _seen_from(plan: RunPlan, colluders: tuple[int, int] | None, index: int) -> RunPlan:
    run = plan.config.run.model_copy(update={"keep_releases": plan.config.audit.trials})
    config = plan.config.model_copy(update={"run": run})
    if colluders is None:
        return replace(plan, config=config)
    audit = config.audit.model_copy(update={"colluders": colluders[index]})
    federation = replace(plan.federation, threat_model=ThreatModel(colluders=colluders[index]))
    return replace(plan, config=config.model_copy(update={"audit": audit}), federation=federation)


def _without_own(plan: RunPlan, directory: Path) -> Floats:
    """Return the log-odds of an insider who subtracts no noise of its own, and takes all noise for that of others."""
    federation = load_federation(plan.federation)
    mechanism = plan.federation.mechanism
    assert isinstance(mechanism.noise, DistributedGaussian), "there is a share to subtract"
    whole = replace(plan.federation, mechanism=replace(mechanism, noise=CentralGaussian(mechanism.noise.multiplier)))
    ignorant = replace(federation, public=whole)
    log_odds = []
    for path in sorted((directory / "public").glob("releases-*")):
        increments = [
            log_likelihood_ratio(
                ignorant,
                sums_of(federation, server_round.models[-2], RoundContext(server_round.number), server_round.side),
                server_round.release,
            ).increment
            for server_round in stored_rounds(federation, load_file(path))
        ]
        log_odds.append(np.sum(increments, axis=0))
    return np.concatenate(log_odds)


def knowledge_table(compared: list[Compared], trials: int) -> Table:
    """Return the table of all comparisons."""
    title = f"What more knowledge is worth: probability of being right, {trials} trials, the same for both"
    columns = ("adjacency", "noise", "the first also knows", "it is right", "the other", "paired difference")
    table = table_of(columns, title, columns[:3])
    for comparison_result in compared:
        difference = comparison_result.difference
        federation = comparison_result.comparison.less
        interval = f"{difference.value:+.4f} ({difference.low:+.4f} to {difference.high:+.4f})"
        right = (f"{comparison_result.more:.4f}", f"{comparison_result.less:.4f}", interval)
        table.add_row(federation.adjacency, federation.noise, comparison_result.comparison.name, *right)
    return table
