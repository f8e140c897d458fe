"""Table 1 of Bernau et al. 2021: how the time of the adversary's computations grows with records and rounds.

Our exponents are measured: the CPU time of each of three computations is taken at several sizes, on random records of
the size of Purchase-100. The exponent is the slope of a linear regression of log time on log size. Each time also has a
constant part, so at small sizes the measured exponent is smaller than the table's.
"""

import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from scipy import stats

from fl_audit.adjacency import Adjacency
from fl_audit.data.data_setting_enums import Dissimilarity
from fl_audit.data.neighbours import ranked_neighbours
from fl_audit.data.records import Records
from fl_audit.experiments.papers.item_results import CONFIDENCE, ItemResult, ItemRow, measured_row, table
from fl_audit.experiments.papers.papers import StoredPaperRuns
from fl_audit.experiments.papers.plot_style import legend_below
from fl_audit.experiments.papers.statistics import reproducible_generator
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.report.figure_style import finish_axes, new_figure
from fl_audit.statistics.advantage import empirical_advantage
from fl_audit.statistics.interval_estimates import IntervalEstimate

SIZES = (500, 1000, 2000, 4000)
ROUNDS = (4, 8, 16, 32)
RECORDS_OF_ROUNDS = 2000
_TIMES = 3  # of which the shortest counts: whatever else runs can only add to one
_FEATURES = 600
_CLASSES = 100
_LOOKS = (("-", "o", "#12426e"), ("--", "s", "#5c5c5c"), ("-.", "^", "#b35806"), (":", "v", "#762a83"))
Prepared = Callable[[int], Callable[[], object]]
"""A function that returns, for a size, the work to be timed; its data are made before."""


def _records(count: int, name: str = "D") -> Records:
    draw = reproducible_generator(f"table 1 {name} {count}")
    features = (draw.random((count, _FEATURES)) < 0.5).astype(np.float32)
    return Records(features, draw.integers(_CLASSES, size=count), _CLASSES)


def _seconds(prepare: Prepared, size: int) -> float:
    """Return the CPU seconds of prepared work at a size, the minimum over repetitions."""
    work = prepare(size)
    seconds = list[float]()
    for _ in range(_TIMES):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return min(seconds)


def _dataset_sensitivity(size: int) -> Callable[[], object]:
    inside = _records(size)
    outside = _records(size, "outside D")
    return lambda: ranked_neighbours(Adjacency.REPLACE_RECORD, inside, outside, Dissimilarity.HAMMING, 1)


def _beliefs(size: int, rounds: int) -> Callable[[], object]:
    """Return a function that computes the sum of clipped gradients of `size` records in every round.

    A belief needs the sums of both D and D'. Both take the same time, so one sum shows the same growth with `size`.
    """
    records = _records(size)
    network = torch.nn.Sequential(torch.nn.Linear(_FEATURES, 128), torch.nn.ReLU(), torch.nn.Linear(128, _CLASSES))
    model = StackedModel(network, (_FEATURES,))
    models = torch.zeros((1, sum(parameter.numel() for parameter in network.parameters())))
    features = torch.from_numpy(records.features)
    labels = torch.from_numpy(records.labels)
    return lambda: [model.clipped_sum(models, features, labels, 3.0) for _ in range(rounds)]


def _advantage(_: int) -> Callable[[], object]:
    """Return a function to be timed, which computes an adversary's advantage from one trial.

    The argument, the number of records, does not influence the function.
    """
    return lambda: empirical_advantage(np.ones(1, dtype=np.bool_), CONFIDENCE)


_PARTS: tuple[tuple[str, str, float, str, Prepared, Sequence[int]], ...] = (
    ("DS, dataset sensitivity", "O(n^2)", 2.0, "records", _dataset_sensitivity, SIZES),
    ("belief, by records", "O(n k)", 1.0, "records", lambda size: _beliefs(size, ROUNDS[0]), SIZES),
    ("belief, by rounds", "O(n k)", 1.0, "rounds", lambda rounds: _beliefs(RECORDS_OF_ROUNDS, rounds), ROUNDS),
    ("Adv, advantage of one training", "O(1)", 0.0, "records", _advantage, SIZES),
)


def exponent(sizes: Sequence[int], seconds: Sequence[float]) -> IntervalEstimate:
    """Return the exponent of time as a power of size, with its t interval, by regression of log time on log size."""
    fitted = stats.linregress(np.log(sizes), np.log(seconds))
    reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(sizes) - 2)) * float(fitted.stderr)
    return IntervalEstimate(float(fitted.slope), float(fitted.slope) - reach, float(fitted.slope) + reach)


def table_1(_finished: StoredPaperRuns) -> ItemResult:
    """Return Table 1: the printed complexities, and the exponents that we measure."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        times = [[max(_seconds(work, size), 1e-7) for size in sizes] for *_, work, sizes in _PARTS]
    finally:
        torch.set_num_threads(threads)
    figure = new_figure(3.9)
    axes = figure.add_subplot()
    rows: list[ItemRow] = []
    for (name, printed, power, unit, _, sizes), seconds, (line, marker, colour) in zip(
        _PARTS, times, _LOOKS, strict=True
    ):
        axes.plot(sizes, seconds, line, marker=marker, color=colour, linewidth=1.8, label=f"{name}, {printed}")
        duration = "; ".join(f"{second:.3g} s at {size:,} {unit}" for second, size in zip(seconds, sizes, strict=True))
        rows.append(
            measured_row(
                name,
                f"exponent of {unit}",
                exponent(sizes, seconds),
                len(sizes),
                f"printed: {printed}; processor time of one thread: {duration}",
                published=power,
            )
        )
    axes.set(xscale="log", yscale="log")
    finish_axes(axes, "", "Records or rounds (count)", "Processor time (s)")
    legend_below(figure, [axes], columns=2)
    return ItemResult(
        table(rows),
        figure,
        f"Processor time of one thread at growing sizes, on made-up records of {_FEATURES} binary features and "
        f"{_CLASSES} classes; the network is that of Purchase-100.",
        (
            "The paper gives orders of growth alone. DS is that of Eq. (11), for a replaced record: each of n records "
            "is compared with n others by the Hamming distance.",
        ),
    )
