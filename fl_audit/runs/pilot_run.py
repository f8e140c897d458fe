"""A pilot run: a few trials of a planned run, which show how many trials a conclusive verdict needs.

A plan alone can only assume that every contribution of the target is as long as the clipping norm. In a training,
contributions become shorter and differ from trial to trial, and then a verdict takes more trials: up to twice as many
in trainings of 30 rounds on tables, as measured. The probe of `time_probe` comes before it, and says how many trials
take a few seconds.
"""

import tempfile
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from fl_audit.errors import InputError
from fl_audit.federation.run_plan import RunPlan
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.progress import Progress
from fl_audit.runs.run import run_audit
from fl_audit.runs.time_probe import ProbeEndError, TimeAndMemoryEstimate
from fl_audit.runs.verbosity import with_verbosity
from fl_audit.verdict.findings_verdict import VerdictFinding
from fl_audit.verdict.signal_detection_limit import SignalDetectionLimit

_FEWEST_TRIALS = 24
_MOST_TRIALS = 200
"""Numbers of trials of a pilot run: with more, the number of needed trials is known more exactly."""
_SECONDS = 5.0
"""Seconds that a pilot run should take at most; it ends without a result after three times as long."""


def pilot_of_signal(plan: RunPlan, estimate: TimeAndMemoryEstimate) -> SignalDetectionLimit | None:
    """Run the first trials of a planned run, and return the limits of detection for a target that counts several times.

    The trials run in this process on the local engine, and their results are not kept.

    `estimate`: If a few trials would take too long, none is run.
    """
    settings = plan.config.run
    affordable = _SECONDS * estimate.trials / (estimate.round_seconds * plan.federation.rounds)
    if affordable < _FEWEST_TRIALS:
        return None
    trials = min(_MOST_TRIALS, round(affordable))
    config = plan.config.changed(
        # Neither attacks nor other evaluations of the models: only the noise and the contributions count.
        audit={"trials": trials, "sections": (), "attacks": None, "reconstruct_samples": None}
        | {"epsilon_star": False, "membership": False},
        # Whatever seed is drawn for the run, its contributions are about as long.
        run={"seed": settings.seed or 0, "keep_releases": 0, "trials_per_batch": min(trials, plan.trials_per_batch)},
    )
    pilot = replace(plan, config=config)
    try:
        with tempfile.TemporaryDirectory(prefix="fl-audit-pilot-") as directory, with_verbosity(None, quiet=True):
            contents = run_audit(
                pilot, Path(directory) / "run", Engine.LOCAL, progress=_ends_after(3 * _SECONDS), with_report=False
            )
    except (ProbeEndError, InputError):
        return None
    finding = contents.find(VerdictFinding)
    return None if finding is None or finding.judgement is None else finding.judgement.signal


def _ends_after(seconds: float) -> Progress:
    """Return a display that shows nothing, and raises `ProbeEndError` after the given seconds."""
    last = time.monotonic() + seconds

    def on_round(done: int) -> None:
        if time.monotonic() > last:
            raise ProbeEndError

    return lambda total: nullcontext(on_round)
