"""The runs of Bernau et al. 2021, section 6: their data sets, base configuration and axes.

rho_beta is the claimed upper bound on the insider's belief in the true data set. The paper calls replacing a record
bounded DP (B), and adding or removing one unbounded DP (U). Noise is scaled to the local sensitivity (LS) or to the
global one (GS).
"""

import zlib
from dataclasses import replace
from itertools import product
from math import nan

import numpy as np

from fl_audit.adjacency import Adjacency
from fl_audit.array_types import Floats
from fl_audit.data.catalogue import load_source
from fl_audit.data.data_setting_enums import NeighbourChoice
from fl_audit.data.record_selection import select_records
from fl_audit.experiments.papers.item_results import ItemRow, measured_row
from fl_audit.experiments.papers.papers import PaperDataset, PaperRun, PrintedNumbers, Settings, StoredPaperRun
from fl_audit.experiments.papers.statistics import predicted_advantage
from fl_audit.mechanisms.noises.central import SENSITIVITY_FLOOR
from fl_audit.privacy.accounting_enums import SensitivityKind
from fl_audit.privacy.identifiability_bounds import gaussian_advantage
from fl_audit.runs.federation_of_config import data_spec
from fl_audit.statistics.interval_estimates import IntervalEstimate

PRINTED = PrintedNumbers(__file__)
ROUNDS = 30
CLIPPING_NORM = 3.0
BELIEFS = (0.75, 0.9, 0.99)  # the values of rho_beta, without the smallest one, which differs between the data sets
MAIN_BELIEF = 0.9
MAIN_REPETITIONS = 1000
OTHER_REPETITIONS = 250
"""About as many repetitions as are behind numbers that the paper prints: at rho_beta = 0.9, and elsewhere (242 to
493)."""
NEIGHBOUR_REPETITIONS = 100  # of each neighbour that Figure 4 alone needs; the paper states no number
SENSITIVITIES = (SensitivityKind.LOCAL, SensitivityKind.GLOBAL)
ADJACENCIES = (Adjacency.REPLACE_RECORD, Adjacency.ADD_REMOVE_RECORD)
LETTERS = {
    SensitivityKind.LOCAL: "LS",
    SensitivityKind.GLOBAL: "GS",
    Adjacency.REPLACE_RECORD: "B",
    Adjacency.ADD_REMOVE_RECORD: "U",
}

BASE: Settings = {
    "data.clients": 10,
    "training.rounds": ROUNDS,
    "training.learning-rate": 0.005,
    "training.optimizer": "adam",
    "privacy.accountant": "rdp-classic",
    "privacy.clipping-norm": CLIPPING_NORM,
    "audit.epsilon-star": False,
    "audit.evaluate-every": ROUNDS,
    "run.keep-releases": 0,
}
"""Settings of every run."""


def _dataset(
    study: str,
    name: str,
    settings: Settings,
    smallest_belief: float,
    quick_trials: tuple[int, int, int],
    quick: Settings | None = None,
) -> PaperDataset:
    """Return a data set; trials are those at rho_beta = 0.9, at other rho_beta, and for neighbours of Figure 4."""
    return PaperDataset(
        study,
        study,
        {
            "data.name": name,
            **settings,
            "beliefs": (smallest_belief, *BELIEFS),
            "trials": (MAIN_REPETITIONS, OTHER_REPETITIONS, NEIGHBOUR_REPETITIONS),
        },
        {"data.test-records": 100, "trials": quick_trials, **(quick or {})},
    )


# The number of test records is not stated, and the number of trials in a batch bounds the memory.
MNIST = _dataset(
    "MNIST",
    "mnist",
    {
        "data.records": 100,
        "data.test-records": 200,
        "model.name": "mnist-cnn",
        "privacy.delta": 0.01,
        "audit.dissimilarity": "ssim",
        "run.trials-per-batch": 250,
    },
    0.52,
    (6, 2, 2),
    {"audit.dissimilarity": "euclidean"},  # a search by SSIM takes minutes
)
PURCHASE = _dataset(
    "Purchase-100",
    "purchase100",
    {
        "data.records": 1000,
        "data.test-records": 1000,
        "model.name": "dense-128",
        "privacy.delta": 0.001,
        "audit.dissimilarity": "hamming",
        "run.trials-per-batch": 125,
    },
    0.53,
    (12, 4, 2),
)
LOCATION = replace(
    PURCHASE,
    title="Location-30 for Purchase-100",
    settings={**PURCHASE.settings, "data.name": "location30"},
    stands_in=True,
)
ADULT = _dataset(
    "Adult",
    "adult",
    {
        "data.records": 1000,
        "data.test-records": 1000,
        "model.name": "adult-mlp",
        "privacy.delta": 0.001,
        "audit.dissimilarity": "manhattan",
        "run.trials-per-batch": 250,
    },
    0.53,
    (60, 30, 10),
)
CANDIDATES = {MNIST.study: ((MNIST,),), PURCHASE.study: ((PURCHASE,), (LOCATION,)), ADULT.study: ((ADULT,),)}


def insider_run(
    dataset: PaperDataset,
    sensitivity: SensitivityKind,
    adjacency: Adjacency,
    belief: float = MAIN_BELIEF,
    neighbour: NeighbourChoice = NeighbourChoice.MOST_DISSIMILAR,
    rank: int = 1,
) -> PaperRun:
    """Return the run at one value of each axis; `rank` is that of the neighbour among those of its kind."""
    main, other_trials, of_a_neighbour = dataset["trials"]
    is_usual = is_usual_neighbour(neighbour, rank)
    letters = f"{LETTERS[sensitivity]} {LETTERS[adjacency]}"
    which = f"{neighbour}-{rank}"
    name = f"{dataset.name}-{sensitivity}-{adjacency}-{belief:g}{'' if is_usual else f'-{which}'}"
    seed = zlib.crc32(name.encode())
    label = f"{dataset.title}, {letters}, rho_beta {belief:g}{'' if is_usual else f', {neighbour} {rank}'}"
    trials = (main if belief == MAIN_BELIEF else other_trials) if is_usual else of_a_neighbour
    axes = {
        "privacy.sensitivity": sensitivity,
        "privacy.adjacency": adjacency,
        "privacy.belief": belief,
        "audit.neighbour": neighbour,
        **({} if is_usual else {"audit.neighbour-rank": rank}),
        "audit.trials": trials,
        "model.seed": seed,
        "run.seed": seed,
    }
    return PaperRun(dataset, name, label, {**BASE, **dataset.settings, **axes})


def is_usual_neighbour(neighbour: NeighbourChoice, rank: int) -> bool:
    """Return whether D' is the most dissimilar neighbour of D, as in all tables and figures except Figure 4."""
    return neighbour is NeighbourChoice.MOST_DISSIMILAR and rank == 1


def main_runs(dataset: PaperDataset) -> tuple[PaperRun, ...]:
    """Return the runs of Table 2 and Figures 5 and 6: rho_beta = 0.9, both noise scalings and both adjacencies."""
    return tuple(insider_run(dataset, *axes) for axes in product(SENSITIVITIES, ADJACENCIES))


def audit_runs(dataset: PaperDataset) -> tuple[PaperRun, ...]:
    """Return the runs of Figures 7 to 9: bounded DP (replaced record), both noise scalings and all rho_beta."""
    return tuple(
        insider_run(dataset, sensitivity, Adjacency.REPLACE_RECORD, belief)
        for sensitivity, belief in product(SENSITIVITIES, dataset["beliefs"])
    )


def neighbour_runs(dataset: PaperDataset) -> tuple[PaperRun, ...]:
    """Return the runs of Figure 4: the most and the least dissimilar neighbours of D."""
    return tuple(run for adjacency in ADJACENCIES for run in runs_by_neighbour(dataset, adjacency))


def all_runs(dataset: PaperDataset) -> tuple[PaperRun, ...]:
    """Return the runs of all tables and figures; one that several of them share occurs several times."""
    return (*main_runs(dataset), *audit_runs(dataset), *neighbour_runs(dataset))


def runs_by_neighbour(dataset: PaperDataset, adjacency: Adjacency) -> tuple[PaperRun, ...]:
    """Return the runs of one panel of Figure 4, from the most to the least dissimilar neighbour.

    On MNIST with replaced records there are three of each kind, otherwise one. In the paper's figure, the local
    sensitivities on MNIST exceed the clipping norm C. This is only possible if the paper replaces records. We add
    panels for removed records.
    """
    three = dataset.study == MNIST.study and adjacency is Adjacency.REPLACE_RECORD
    ranks = (1, 2, 3) if three else (1,)
    most_dissimilar = ((NeighbourChoice.MOST_DISSIMILAR, rank) for rank in ranks)
    least_dissimilar = ((NeighbourChoice.LEAST_DISSIMILAR, rank) for rank in reversed(ranks))
    return tuple(
        insider_run(dataset, SensitivityKind.LOCAL, adjacency, MAIN_BELIEF, *which)
        for which in (*most_dissimilar, *least_dissimilar)
    )


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
