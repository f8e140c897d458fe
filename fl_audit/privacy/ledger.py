"""Privacy ledger of a site: one entry per training on its data, and the epsilon of all these trainings together.

The entries form a hash chain: each has a SHA-256 digest of its content and of the previous digest. So changed, inserted
and removed entries are detected; entries removed from the end are detected only by somebody who noted the last digest.
Reading a ledger needs no scipy, so clients can import this module; scipy is imported to compute epsilon.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fl_audit.atomic_files import write_text
from fl_audit.errors import InputError, require
from fl_audit.ordinary_files import read_text_file
from fl_audit.privacy.accounting_enums import Accountant, TrainingCount
from fl_audit.privacy.stated_releases import StatedReleases, terms_of_json
from fl_audit.value_checks import choice, require_number

if TYPE_CHECKING:
    from filelock import FileLock

    from fl_audit.privacy.claim import Claim

_START = "0" * 64


@dataclass(frozen=True)
class LedgerTraining:
    """Entry of a ledger, which describes one training, or several alike: the points of a sweep, or restarts.

    Raises `InputError` if `sensitivity` or `clipping_norm` is not positive and finite, or only one of them is given, or
    `trainings` is no whole number from 1, or from 2 with a selection.
    """

    name: str  # name of the training, such as the number of its run
    terms: StatedReleases  # releases of the training, as stated by its operator
    # The stated sensitivity of the sum, to which the noise multiplier refers, and the clipping norm of contributions;
    # both None if the stated sensitivity is right.
    sensitivity: float | None = None
    clipping_norm: float | None = None
    digest: str = ""  # digest of this entry and the previous digest; empty before the entry is written
    trainings: int = 1  # number of trainings with these releases, all of which count
    # Distribution of the number of trainings, from which the best alone was published; `trainings` is then its mean.
    selection: TrainingCount | None = None

    def __post_init__(self) -> None:
        is_consistent = (self.sensitivity is None) == (self.clipping_norm is None)
        require(is_consistent, "sensitivity without clipping norm, or the other way round: accepted are both or none")
        for quantity, value in (("sensitivity", self.sensitivity), ("clipping norm", self.clipping_norm)):
            if value is not None:
                require_number(f"{quantity} is", value, "positive finite numbers")
        require_number("trainings are", self.trainings, "whole numbers from 1")
        if self.selection is not None:
            object.__setattr__(self, "selection", choice(TrainingCount, "selection", self.selection))
            require(self.trainings > 1, "trainings are 1: accepted with a selection are whole numbers from 2")

    @property
    def sensitivity_ratio(self) -> float:
        """Factor, at least 1, by which the real sensitivity of the sum exceeds the sensitivity stated in the entry.

        The real sensitivity follows from the clipping norm and the adjacency. The factor is 1 if the entry states no
        sensitivity.
        """
        if self.sensitivity is None or self.clipping_norm is None:
            return 1.0
        return max(1.0, self.terms.adjacency.sensitivity_of_sum(self.clipping_norm) / self.sensitivity)

    @property
    def noise_multiplier(self) -> float:
        """Noise multiplier relative to the real sensitivity of the sum.

        This value is the stated noise multiplier divided by `sensitivity_ratio`, the real sensitivity over the stated
        one.
        """
        return self.terms.noise_multiplier / self.sensitivity_ratio

    def to_json(self) -> dict[str, Any]:
        """Return the entry as a dict of JSON values, without its digest."""
        sizes = {"sensitivity": self.sensitivity, "clipping_norm": self.clipping_norm}
        stated_sizes = {name: size for name, size in sizes.items() if size is not None}
        # An entry of one training is as it was before entries counted trainings, so that its digest fits.
        several = {} if self.trainings == 1 else {"trainings": self.trainings}
        chosen = {} if self.selection is None else {"selection": str(self.selection)}
        return {"name": self.name} | self.terms.to_json() | stated_sizes | several | chosen

    def claim(self, delta: float) -> "Claim":
        """Return the claim of a single training of the entry, with the noise over the real sensitivity of the sum."""
        return replace(self.terms, noise_multiplier=self.noise_multiplier).claim(delta)


@dataclass(frozen=True)
class SpentPrivacy:
    """Epsilon of all trainings of a ledger (a list of trainings on the same data) together, and their joint claim."""

    epsilon: float  # epsilon at the delta of the claim, by its accountant; 0 without any training
    claim: "Claim | None"  # claim for the releases of all trainings; None without any, or where a best one was chosen


def read_ledger(path: Path) -> tuple[LedgerTraining, ...]:
    """Read the entries of a ledger, a file with one JSON object per line; return () if the file does not exist.

    Raises
    ------
    InputError
        If the file cannot be read, the digest of an entry is wrong, or entries have different adjacencies.
    """
    if not path.exists():
        return ()
    lines: list[LedgerTraining] = []
    try:
        texts = read_text_file(path).splitlines()
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    for number, text in enumerate(texts, 1):
        where = f"{path} line {number}"
        try:
            stored = json.loads(text)
            terms = terms_of_json(stored, where)
            sizes = (stored.get("sensitivity"), stored.get("clipping_norm"))
            digest = str(stored["digest"])
            selection_fields = {"trainings": stored.get("trainings", 1), "selection": stored.get("selection")}
            line = LedgerTraining(str(stored["name"]), terms, *sizes, digest=digest, **selection_fields)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{where} is no training: {error}") from None
        right = _digest(line, lines[-1].digest if lines else _START)
        require(line.digest == right, f"{where} was changed, or a line before it was: its digest does not fit")
        lines.append(line)
    _require_one_adjacency(lines)
    return tuple(lines)


def ledger_lock(path: Path) -> "FileLock":
    """Return a reentrant file lock that protects a ledger, and files that belong to it, from concurrent writers.

    The directory of the ledger is created if it is missing. Raises `InputError` if `path` is a directory.
    """
    # Clients import this module, and few of them keep a ledger.

    require(bool(path.name) and not path.is_dir(), f"ledger {path} is a directory: accepted is a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f"{path.name}.lock")
    lock.touch()  # raises an error if the directory is not writable; the lock would wait forever

    from filelock import FileLock  # noqa: PLC0415

    return FileLock(lock, is_singleton=True)


def add_to_ledger(
    path: Path, training: LedgerTraining, budget: float | None = None, delta: float | None = None
) -> bool:
    """Append an entry to a ledger and return True; return False without a change if the budget would be exceeded.

    Raises `InputError` if the ledger is damaged, its entries have another adjacency than the new one, or a number is
    out of range.

    Parameters
    ----------
    path
        Path of the ledger file, which is created if it is missing; concurrent writers wait.
    training
        The entry of the new training.
    budget
        Largest allowed epsilon of all trainings together, above 0; None for no budget.
    delta
        Delta at which the budget's epsilon is computed, above 0 and below 1; None without a budget.
    """
    if budget is not None:
        require_number("budget is", budget, "positive numbers")
    require(budget is None or delta is not None, "a budget without delta: accepted are both")
    with ledger_lock(path):
        lines = read_ledger(path)
        _require_one_adjacency([*lines, training])
        if budget is not None and delta is not None and composed_epsilon((*lines, training), delta).epsilon > budget:
            return False
        body = training.to_json() | {"digest": _digest(training, lines[-1].digest if lines else _START)}
        before = read_text_file(path) if lines else ""
        write_text(path, f"{before}{json.dumps(body)}\n")
    return True


def composed_epsilon(lines: Sequence[LedgerTraining], delta: float) -> SpentPrivacy:
    """Return the epsilon of all trainings of a ledger together, with the claim for which it was computed.

    The noise multiplier of each training is relative to its real sensitivity (`LedgerTraining.noise_multiplier`). With
    entries of which the best training was chosen, Renyi divergences are added, by the accountant `rdp`. Raises
    `InputError` if delta is out of range, or the noise is too small for a finite epsilon.

    Parameters
    ----------
    lines
        Entries of one ledger.
    delta
        Delta at which epsilon is computed, above 0 and below 1.
    """

    if not lines:
        return SpentPrivacy(0.0, None)
    if any(line.selection is not None for line in lines):
        return SpentPrivacy(_epsilon_with_selections(lines, delta), None)
    rounds: Counter[tuple[float, float]] = Counter()
    for line in lines:
        rounds[line.noise_multiplier, line.terms.sampling_rate] += line.trainings * line.terms.rounds

    from fl_audit.privacy.events import gaussian_rounds  # noqa: PLC0415

    events = tuple(event for (noise, rate), count in rounds.items() for event in gaussian_rounds(noise, count, rate))

    from fl_audit.privacy.claim import Claim  # noqa: PLC0415

    claim = Claim(lines[0].terms.adjacency, events, delta)

    from fl_audit.privacy.accounting import account  # noqa: PLC0415

    return SpentPrivacy(account(claim.profile, claim.accountant, delta), claim)


def _epsilon_with_selections(lines: Sequence[LedgerTraining], delta: float) -> float:
    """Return the epsilon of all trainings of a ledger, if of some entries the best training alone was published."""
    from fl_audit.privacy.private_selection import selection_divergences  # noqa: PLC0415
    from fl_audit.privacy.renyi import rdp_epsilon, renyi_divergences  # noqa: PLC0415

    claims = [line.claim(delta) for line in lines]
    divergences = [
        line.trainings * renyi_divergences(claim.events, None, claim.adjacency)
        if line.selection is None
        else selection_divergences([claim], line.selection, line.trainings)
        for line, claim in zip(lines, claims, strict=True)
    ]
    return rdp_epsilon(Accountant.RDP, sum(divergences[1:], start=divergences[0]), delta)


def _require_one_adjacency(lines: Sequence[LedgerTraining]) -> None:
    """Raise `InputError` if entries have different adjacencies, because their privacy losses cannot be added."""
    adjacencies = sorted({line.terms.adjacency for line in lines})
    trainings = f"the ledger has trainings between neighbours by {' and '.join(adjacencies)}"
    require(len(adjacencies) < 2, f"{trainings}: accepted is one ledger for each")


def _digest(training: LedgerTraining, before: str) -> str:
    return hashlib.sha256(f"{before}\n{json.dumps(training.to_json(), sort_keys=True)}".encode()).hexdigest()
