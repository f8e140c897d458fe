"""Replay: computes an insider's log-odds again from public files, to prove that the insider used nothing else.

The log-odds are the evidence for D against D'.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fl_audit.array_files import read_tensors
from fl_audit.array_types import Floats, Integers
from fl_audit.audits.identifiability.identifiability_adversary import observe
from fl_audit.audits.registry import audit_of
from fl_audit.errors import require
from fl_audit.federation.loaded_federation import LoadedFederation, load_federation
from fl_audit.federation.observed_rounds import ServerRound, part_seen_by_clients, replayed_rounds
from fl_audit.parquet_files import read_frame
from fl_audit.runs.run_directory import read_public

_ROUNDING = 1e-6
_DIGITS = 15


@dataclass(frozen=True)
class ReplayMatch:
    """Comparison of log-odds that were computed again from public files with those that the run has stored."""

    difference: float  # largest difference of a trial's final log-odds, divided by max(1, |stored log-odds|)

    @property
    def agrees(self) -> bool:
        """Whether recomputed and stored log-odds of all trials agree, apart from rounding errors."""
        return self.difference <= _ROUNDING

    @property
    def digits(self) -> int:
        """Number of decimal digits, 0 to 15, to which recomputed and stored log-odds of all trials agree."""
        return _DIGITS if self.difference == 0 else int(np.clip(-np.log10(self.difference), 0, _DIGITS))

    def __str__(self) -> str:
        if self.agrees:
            return f"agrees with the run to {self.digits} digits: its beliefs follow from the public files alone"
        return (
            f"does not agree with the run: log-odds differ by up to {self.difference:.2g}, where rounding makes "
            f"{_ROUNDING:g} at most; a file of the run was changed, or the run is of another version"
        )


@dataclass(frozen=True)
class ReplayedLogOdds:
    """Results of repeating an insider's computation on the stored releases of some trials.

    They are its log-odds of D against D', and its measurements of the noise.
    """

    trials: Integers  # numbers of the trials with kept releases, shape (trials,)
    log_odds: Floats  # cumulative log-odds after each round, float64 (trials, rounds)
    sigma: Floats  # standard deviation of the noise that the mechanism claims in each round, float64 (trials, rounds)
    # Standard deviation of the noise that the insider measures in each round, float64 (trials, rounds).
    measured_sigma: Floats

    @property
    def noise_ratio(self) -> Floats:
        """Ratio of measured to claimed noise in each trial: the root mean square over the rounds, shape (trials,)."""
        ratio: Floats = np.sqrt(np.square(self.measured_sigma / self.sigma).mean(axis=1))
        return ratio

    def agreement(self, directory: Path) -> ReplayMatch | None:
        """Return the comparison of the recomputed final log-odds with those that a run has stored in its directory.

        The result is None if the directory has no table of trials.
        """
        results = directory / "trials.parquet"
        if not results.exists():
            return None
        stored = read_frame(results).set_index("trial")["log_odds"].reindex(self.trials).to_numpy(dtype=np.float64)
        difference = np.abs(self.log_odds[:, -1] - stored) / np.maximum(1.0, np.abs(stored))
        # A trial that one of the two lacks, or a log-odds that is no number, agrees with nothing.
        return ReplayMatch(float(np.nan_to_num(difference, nan=np.inf).max()))


def replay(directory: Path) -> ReplayedLogOdds:
    """Compute an insider's log-odds again from the stored releases of a run, in the folder `public/` of its directory.

    Raises `InputError` if the directory holds no run, if no releases are stored, or if the insider has no log-odds.
    """
    public, _ = read_public(directory)
    problem = f"{directory} holds a run"
    why = audit_of(public).why_not_recomputed(public)
    require(not why, f"{problem} {why}")
    accepted = "accepted is one whose log-odds are likelihood ratios"
    require(public.mechanism.knows_llr, f"{problem} whose insider has scores and no log-odds: {accepted}")
    torch.set_num_threads(public.threads)
    federation = load_federation(public)
    public_directory = directory / "public"
    files = sorted(public_directory.glob("releases-*.safetensors"))
    require(len(files) > 0, f"{public_directory} holds no releases: accepted is a run with keep-releases of 1 and more")
    odds = [_replay_batch(federation, read_tensors(path)) for path in files]
    names = ("trials", "log_odds", "sigma", "measured_sigma")
    return ReplayedLogOdds(*(np.concatenate([getattr(batch_odds, name) for batch_odds in odds]) for name in names))


def _replay_batch(federation: LoadedFederation, stored: dict[str, Tensor]) -> ReplayedLogOdds:
    public = federation.public
    batch_trials = int(stored["batch_trials"])
    rounds = list(stored_rounds(federation, stored))
    evidences = [
        observe(federation, part_seen_by_clients(public.view, public.mechanism, round), batch_trials)
        for round in rounds
    ]
    increments = np.stack([evidence.increment for evidence in evidences], axis=1)
    scales = [
        public.mechanism.noise_scale(evidence.local_sensitivity, public.threat_model, round.side.norms_array)
        for round, evidence in zip(rounds, evidences, strict=True)
    ]
    measured = np.stack([evidence.residuals.sigma for evidence in evidences], axis=1)
    return ReplayedLogOdds(stored["trials"].numpy(), increments.cumsum(axis=1), np.stack(scales, axis=1), measured)


def stored_rounds(federation: LoadedFederation, stored: dict[str, Tensor]) -> Iterator[ServerRound]:
    """Rebuild the server's rounds of some trials from stored releases, and yield them from the first to the last.

    `stored`: Each other tensor holds values that the insider sees in the rounds, and its first axis is the round.
    """
    public = federation.public
    by_round = {name: value for name, value in stored.items() if name not in ("trials", "batch_trials", "initial")}
    rounds = [{name: value[index] for name, value in by_round.items()} for index in range(public.rounds)]
    return replayed_rounds(public.view, public.mechanism, stored["initial"], rounds)
