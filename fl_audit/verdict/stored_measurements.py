"""Read the measurements that the tests of the verdict need from the tables of a finished run."""

import math
from dataclasses import replace
from functools import partial

import numpy as np

from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.federation.federation import Federation
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.mechanisms.noises.mechanism_noise import NoiseOrigin
from fl_audit.privacy.accounting_enums import SensitivityKind
from fl_audit.verdict.noise_scale import NoiseAlongTarget
from fl_audit.verdict.noise_statistics import NoiseStatistics
from fl_audit.verdict.opened_secrets import OPENED_COLUMNS, OpenedSecrets, samples_of, shares_of
from fl_audit.verdict.run_measurements import NoiseMeasurements

_TARGET_NOISE = ("noise_squares", "noise_rounds", "noise_sum", "signal_sum")


def measured_in(run: FinishedRun) -> NoiseMeasurements:
    """Return the noise measurements of a finished run, from which the tests of the verdict are computed.

    The object is built once for each run, and then cached.
    """
    return run.cached(_measured)


def _measured(run: FinishedRun) -> NoiseMeasurements:
    table = run.tables.residuals
    plan = run.plan
    residuals = None if table is None else NoiseStatistics.of_table(table)
    return NoiseMeasurements(
        members=run.bits,
        increments=run.increments,
        sensitivity=run.by_trial("local_sensitivity"),
        sigma=run.by_trial("sigma"),
        noise_multiplier=plan.federation.mechanism.round_multiplier(plan.federation.threat_model),
        residuals=residuals,
        scores=_scores(run, residuals),
        largest_mu=plan.mu if math.isfinite(plan.mu) else None,
        claimed_length=claimed_length(plan.federation),
        noise_kind=plan.federation.mechanism.noise,
        opened=opened_of_pair(run),
    )


def claimed_length(federation: Federation) -> float | None:
    """Return how far the largest contribution of a target that the claim allows shifts the residuals of a round.

    For Gaussian noise it is the norm of the contribution over the standard deviation of the noise. If clients train
    with DP-SGD, only the noise of clients whose noise the adversary does not know is counted. The result is None if
    the noise is scaled to f(D) - f(D').
    """
    mechanism = federation.mechanism
    if mechanism.scaling is SensitivityKind.LOCAL:
        return None
    multiplier = mechanism.round_multiplier(federation.threat_model)
    if isinstance(mechanism.contribution, PrivateTraining):
        multiplier *= mechanism.contribution.hiding
    return mechanism.noise.residual_shift / mechanism.adjacency.sensitivity_of_sum(1.0) / multiplier


def opened_of_pair(run: FinishedRun) -> OpenedSecrets:
    """Return the values that the challenger revealed after a run on a pair D, D': secret bits, and who took part.

    The first call reads them from the run; later calls return the same object.
    """
    return run.cached(_OF_PAIR)


def opened_of_targets(run: FinishedRun) -> OpenedSecrets:
    """Return the values that the challenger revealed after a run on many targets: secret bits, and who took part.

    The first call reads them from the run; later calls return the same object.
    """
    return run.cached(_OF_TARGETS)


def _opened(run: FinishedRun, of_pair: bool) -> OpenedSecrets:
    federation = run.plan.federation
    opened = run.tables.opened
    tallies = run.tables.tallies
    claim = None if run.plan.guarantee is None else run.plan.guarantee.claim
    has_shares = federation.mechanism.noise.origin is NoiseOrigin.CLIENTS and of_pair
    mechanism = OpenedSecrets(
        run.bits, claim, False, federation.mechanism.is_sampled, has_shares, federation.mechanism.is_adaptive
    )
    if opened is None or tallies is None or opened.empty:
        return mechanism
    rows = opened.sort_values(["trial", "round"])
    grid = {name: rows[name].to_numpy(dtype=np.float64).reshape(run.trials, -1) for name in OPENED_COLUMNS}
    return replace(
        mechanism,
        is_kept=True,
        samples=samples_of(
            rows, tallies, run.trials, federation.mechanism.sampling_rate, of_pair, _opened_rounds(federation)
        )
        if mechanism.is_sampled and len(federation.mechanism.rates) == 1
        else None,
        shares=shares_of(tallies) if has_shares else None,
        bits=grid["bit_noise"] if mechanism.is_adaptive else None,
        wrong_steps=grid["wrong_steps"],
        wrong_norms=grid["wrong_norms"] if mechanism.is_adaptive else None,
        odd=grid["odd"] if of_pair else None,
    )


_OF_PAIR = partial(_opened, of_pair=True)
_OF_TARGETS = partial(_opened, of_pair=False)


def _opened_rounds(federation: Federation) -> Flags | None:
    """Return for each round whether the challenger reveals its sample, shape (rounds,); None if it reveals all samples.

    If groups of units take turns, it reveals only the samples of rounds in which the first group has its turn.
    """
    if (first := federation.eligible_units(1)) is None:
        return None
    turns = (federation.eligible_units(number) for number in range(1, federation.rounds + 1))
    return np.array([turn is not None and np.array_equal(turn, first) for turn in turns])


def _scores(run: FinishedRun, statistics: NoiseStatistics | None) -> Floats | None:
    """Return the noise along f(D) - f(D') as N(0, 1) scores, (trials, rounds); None if the run stored no scores.

    If participation is secret, the scores come from the noise statistics, if these have scores. The challenger computed
    such scores with the knowledge of the rounds in which the target took part. A run stores no scores if the increments
    of the log-odds determine them.
    """
    if run.scores is None or statistics is None or not run.plan.federation.is_secretly_sampled:
        return run.scores
    opened = statistics.signal[..., 0, 0]
    return run.scores if np.isnan(opened).all() else np.asarray(opened)


def noise_along(run: FinishedRun, chosen: Integers, includes_all: bool = True) -> NoiseAlongTarget | None:
    """Return the noise along the contribution of one target unit in every trial, summed over the rounds.

    It is None if it was not measured, as in runs of an older version.

    Shapes: `chosen` (trials,).

    `includes_all`: If so, the result also has the sum over trials for each target.
    """
    table = run.tables.targets
    if table is None or not {*_TARGET_NOISE} <= {*table} or table[[*_TARGET_NOISE]].isna().any(axis=None):
        return None
    is_in = table["is_in"].to_numpy(dtype=np.bool_).reshape(run.trials, -1)
    at = np.arange(run.trials), chosen
    every = {name: table[name].to_numpy(dtype=np.float64).reshape(run.trials, -1) for name in _TARGET_NOISE}
    squares, rounds, sums, lengths = (every[name][at] for name in _TARGET_NOISE)
    inside = is_in[at]
    drift_all = _drift_of_targets(is_in, every["noise_rounds"], every["noise_sum"]) if includes_all else None
    lengths = np.where(inside, lengths, 0.0)
    claimed = claimed_length(run.plan.federation)
    noise = run.plan.federation.mechanism.noise
    return NoiseAlongTarget(
        squares, rounds.astype(np.int64), inside, sums, lengths, drift_all, claimed_length=claimed, noise=noise
    )


def _drift_of_targets(is_in: Flags, rounds: Floats, sums: Floats) -> Floats | None:
    """Return the noise along each target, summed over the trials that contain the target and scaled to variance 1.

    `rounds` holds the numbers of measured rounds and `sums` the sums of the noise over them, both (trials, targets).
    Targets without a measured round are left out. The result is None if fewer than two targets remain.
    """
    counts, drifts = (np.where(is_in, values, 0.0).sum(axis=0) for values in (rounds, sums))
    of_targets = drifts[counts > 0] / np.sqrt(counts[counts > 0])
    return None if of_targets.size < 2 else of_targets
