"""What the tables of a finished run hold for the tests of the verdict."""

import math

import numpy as np

from fl_audit.arrays import Integers
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.verdict.noise_scale import NoiseAlong
from fl_audit.verdict.residuals import Residuals
from fl_audit.verdict.run_measurements import NoiseMeasurements

_TARGET_NOISE = ("noise_squares", "noise_rounds")


def measured_in(run: FinishedRun) -> NoiseMeasurements:
    """Return what the insider measured in a run, for the tests of the verdict; it is worked out once."""
    return run.once(_measured)


def _measured(run: FinishedRun) -> NoiseMeasurements:
    residuals, facts = run.tables.residuals, run.facts
    return NoiseMeasurements(
        members=run.bits,
        increments=run.increments,
        sensitivity=run.by_trial("local_sensitivity"),
        sigma=run.by_trial("sigma"),
        noise_multiplier=facts.federation.mechanism.round_multiplier(facts.federation.threat_model),
        residuals=None if residuals is None else Residuals.of_table(residuals),
        scores=run.scores,
        largest_mu=facts.mu if math.isfinite(facts.mu) else None,
    )


def noise_along(run: FinishedRun, chosen: Integers) -> NoiseAlong | None:
    """Return the noise along the contribution of one target of every trial, in all rounds.

    None where it was not measured, as in batches of an older version.

    Parameters
    ----------
    run, chosen
        A run with a table of targets, and which target of every trial, from 0, (trials,).
    """
    table = run.tables.targets
    if table is None or not {*_TARGET_NOISE} <= {*table} or table[[*_TARGET_NOISE]].isna().any(axis=None):
        return None
    is_in = table["is_in"].to_numpy(dtype=np.bool_).reshape(run.trials, -1)
    at = np.arange(run.trials), chosen
    squares, rounds = (table[name].to_numpy().reshape(run.trials, -1)[at] for name in _TARGET_NOISE)
    return NoiseAlong(squares, rounds.astype(np.int64), is_in[at])
