"""Client-side DP-SGD: what every client promises its own records when it trains with Opacus in every round.

Each client clips and noises by itself, so that its promise depends on its own shard alone: over all rounds it makes
rounds x steps Poisson-sampled Gaussian releases. Records come or go (add-remove), as in Opacus' accountants. The server
and other clients see less than the client's steps, which costs nothing more. Numbers out of their range raise
`InputError`.
"""

from collections.abc import Sequence

from fl_audit.adjacency import Adjacency
from fl_audit.errors import require
from fl_audit.privacy.accounting import Accountant, account
from fl_audit.privacy.events import ReleaseEvent, gaussian_rounds
from fl_audit.privacy.gaussian import require_whole
from fl_audit.privacy.profile import PrivacyProfile


def batches_per_epoch(records: int, batch: int) -> int:
    """Return how many steps make an epoch: the records over the batch size, rounded up, as torch's data loader counts.

    Opacus samples every record into a step with probability one over this number (`PrivacyEngine`, with Poisson
    sampling). Where the batch size divides the records that is batch / records, and otherwise a little less.

    Parameters
    ----------
    records, batch
        Size of the shard, and batch size that the loader was given, from 1.
    """
    require_whole(records=records, batch=batch)
    return -(-records // batch)


def local_events(
    records: int,
    batch: int,
    rounds: int,
    noise_multiplier: float,
    *,
    epochs: int | None = None,
    steps: int | None = None,
) -> tuple[ReleaseEvent, ...]:
    """Return what one client releases over the whole training.

    Parameters
    ----------
    records, batch, rounds
        Size of its shard, batch size of its loader, and in how many rounds it trains; from 1.
    noise_multiplier
        Opacus' noise multiplier: standard deviation of the noise on the sum over the clipping norm, positive.
    epochs, steps
        How many epochs, or how many steps, the client trains in a round, from 1; exactly one of them is given.
    """
    batches = batches_per_epoch(records, batch)
    given = {name: count for name, count in (("epochs", epochs), ("steps", steps)) if count is not None}
    require(len(given) == 1, f"epochs is {epochs} and steps is {steps}: accepted is exactly one of them")
    require_whole(rounds=rounds, **given)
    each = (steps or 0) if epochs is None else epochs * batches
    return gaussian_rounds(noise_multiplier, rounds * each, 1 / batches)


def client_epsilons(
    shard_sizes: Sequence[int],
    batch: int,
    rounds: int,
    noise_multiplier: float,
    delta: float,
    accountant: Accountant,
    *,
    epochs: int | None = None,
    steps: int | None = None,
) -> tuple[float, ...]:
    """Return the epsilon that every client promises its records over all rounds, in the order of the shards.

    Raises `InputError` if a number is out of its range, or the accountant cannot account for sampling.

    Parameters
    ----------
    shard_sizes
        Number of records of each client, from 1.
    batch, rounds, noise_multiplier, epochs, steps
        As for `local_events`, the same for all clients.
    delta, accountant
        Above 0 and below 1; `rdp` reports what Opacus' `RDPAccountant` does, `pld` the tighter answer, and `gdp`
        accounts for one batch only.
    """

    def promised(records: int) -> float:
        events = local_events(records, batch, rounds, noise_multiplier, epochs=epochs, steps=steps)
        return account(PrivacyProfile(events, Adjacency.ADD_REMOVE_RECORD), accountant, delta)

    known = {records: promised(records) for records in dict.fromkeys(shard_sizes)}
    return tuple(known[records] for records in shard_sizes)
