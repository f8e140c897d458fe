"""Numbers of a finished run with an insider, on which several tables and figures rest.

The insider is the adversary that guesses whether D or its neighbour D' was used.
"""

from math import nan

import numpy as np

from fl_audit.array_types import Floats
from fl_audit.data.catalogue import load_source
from fl_audit.data.record_selection import select_records
from fl_audit.experiments.papers.bernau2021.insider_runs import LETTERS, PRINTED
from fl_audit.experiments.papers.item_results import ItemRow, measured_row
from fl_audit.experiments.papers.papers import PaperRun, StoredPaperRun
from fl_audit.experiments.papers.statistics import predicted_advantage
from fl_audit.mechanisms.noises.central import SENSITIVITY_FLOOR
from fl_audit.privacy.accounting_enums import SensitivityKind
from fl_audit.privacy.identifiability_bounds import gaussian_advantage
from fl_audit.runs.federation_of_config import data_spec
from fl_audit.statistics.interval_estimates import IntervalEstimate


def is_local(run: PaperRun) -> bool:
    """Return whether noise is scaled by the local sensitivity."""
    return run["privacy.sensitivity"] is SensitivityKind.LOCAL


def letters(run: PaperRun) -> str:
    """Return the paper's abbreviations of noise scaling and adjacency, such as "LS B" (local sensitivity, bounded
    DP)."""
    return f"{LETTERS[run['privacy.sensitivity']]} {LETTERS[run['privacy.adjacency']]}"


def run_row(
    paper_run: StoredPaperRun, quantity: str, interval: IntervalEstimate, note: str = "", theory: float = nan
) -> ItemRow:
    """Return the table row of a number that was measured in a run, beside the number that the paper prints of it."""
    run = paper_run.run
    return measured_row(
        run.label, quantity, interval, paper_run.repetitions, note, published=PRINTED.of(run, quantity), theory=theory
    )


def claimed_mu(paper_run: StoredPaperRun) -> float:
    """Return the Gaussian-DP parameter mu of all rounds together: sqrt(k) / z for k rounds and noise multiplier z."""
    guarantee = paper_run.summary["guarantee"]
    return float(np.sqrt(guarantee["rounds"]) / guarantee["noise_multiplier"])


def sensitivities(paper_run: StoredPaperRun) -> Floats:
    """Return the local sensitivity of the summed gradient in every round of every trial, shape (trials, rounds)."""
    return _by_trial(paper_run, "local_sensitivity")


def mu_of_trials(paper_run: StoredPaperRun) -> Floats:
    """Return the Gaussian-DP parameter of each trial, (trials,): the root of the sum of (Delta_i / sigma_i)^2.

    Delta_i is the local sensitivity of a round, and sigma_i its noise.
    """
    signal = sensitivities(paper_run) / _by_trial(paper_run, "sigma")
    return np.asarray(np.sqrt(np.sum(signal**2, axis=1)), dtype=np.float64)


def expected_advantage(paper_run: StoredPaperRun) -> float:
    """Return the theoretical advantage of the insider: exact under local noise scaling, else approximate."""
    if is_local(paper_run.run):
        return gaussian_advantage(claimed_mu(paper_run))
    return predicted_advantage(mu_of_trials(paper_run))


def floored_share(paper_run: StoredPaperRun) -> float:
    """Return the share of rounds, over all trials, whose local sensitivity is below the floor of the noise.

    Noise is not reduced below this floor, so it is no longer in proportion to the sensitivity.
    """
    return float(np.mean(sensitivities(paper_run) < SENSITIVITY_FLOOR * paper_run.run["privacy.clipping-norm"]))


def labels_of(paper_run: StoredPaperRun) -> tuple[int, ...]:
    """Return the labels of the records in which D and D' differ: of the record in D, then of its replacement in D'.

    If D' has no replacement, only the first label is returned.
    """
    data = paper_run.config.data
    pair = paper_run.pair
    split = select_records(load_source(data_spec(data)), data.records, data.test_records, data.seed)
    label = int(split.inside.labels[pair.index])
    if pair.replacement is None or split.outside is None:
        return (label,)
    return label, int(split.outside.labels[pair.replacement])


def _by_trial(paper_run: StoredPaperRun, column: str) -> Floats:
    values: Floats = paper_run.rounds[column].to_numpy(dtype=np.float64).reshape(paper_run.repetitions, -1)
    return values
