"""What the tables of a finished run hold for the tests of the verdict."""

import math

import numpy as np

from fl_audit.arrays import Integers
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.verdict.measured import Measured
from fl_audit.verdict.noise_scale import NoiseAlong
from fl_audit.verdict.residuals import Residuals

_TARGET_NOISE = ("noise_squares", "noise_rounds")


def measured_in(run: FinishedRun) -> Measured:
    """Return what the insider measured in a run, for the tests of the verdict; it is worked out once."""
    return run.once(_measured)


def _measured(run: FinishedRun) -> Measured:
    residuals, facts = run.tables.residuals, run.facts
    return Measured(
        members=run.bits,
        increments=run.increments,
        sensitivity=run.by_world("local_sensitivity"),
        sigma=run.by_world("sigma"),
        noise_multiplier=facts.game.law.round_multiplier(facts.game.standpoint),
        residuals=None if residuals is None else Residuals.of_table(residuals),
        scores=run.scores,
        largest_mu=facts.mu if math.isfinite(facts.mu) else None,
    )


def noise_along(run: FinishedRun, chosen: Integers) -> NoiseAlong | None:
    """Return the noise along the contribution of one target of every world, in all rounds.

    None where it was not measured, as in batches of an older version.

    Parameters
    ----------
    run, chosen
        A run with a table of targets, and which target of every world, from 0, (worlds,).
    """
    table = run.tables.targets
    if table is None or not {*_TARGET_NOISE} <= {*table} or table[[*_TARGET_NOISE]].isna().any(axis=None):
        return None
    is_in = table["is_in"].to_numpy(dtype=np.bool_).reshape(run.worlds, -1)
    at = np.arange(run.worlds), chosen
    squares, rounds = (table[name].to_numpy().reshape(run.worlds, -1)[at] for name in _TARGET_NOISE)
    return NoiseAlong(squares, rounds.astype(np.int64), is_in[at])
