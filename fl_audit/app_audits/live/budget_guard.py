"""A Flower mod with which a client refuses to train if the privacy budget of its site would be exceeded.

    app = ClientApp(mods=[budget_mod(Path("/var/ledger"), StatedReleases(...), budget=8.0, delta=1e-5)])

Before the first round of a run, the privacy cost of the whole run is added to the site's ledger. If the total would
exceed the budget, nothing is added, and every training message of the run is answered with an error. Later rounds are
only counted; a run may have as many rounds as its terms state.

Rounds of an audit's trials count too, because a server could pretend that any round belongs to a trial. An audit inside
an app's own code runs hundreds of trials; use the app without this mod for such an audit.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flwr.app import Context, Error, Message
from flwr.clientapp.typing import ClientAppCallable, Mod

from fl_audit.atomic_files import write_text
from fl_audit.errors import InputError
from fl_audit.ordinary_files import read_text_file
from fl_audit.privacy.ledger import LedgerTraining, add_to_ledger, ledger_lock, read_ledger
from fl_audit.privacy.stated_releases import StatedReleases

REFUSED = 451  # error code in the reply of a client that refuses a round


def budget_mod(
    ledger: Path,
    releases: StatedReleases,
    budget: float,
    delta: float,
    sensitivity: float | None = None,
    clipping_norm: float | None = None,
) -> Mod:
    """Return a Flower mod that answers training messages with an error if the run would exceed the site's budget.

    `sensitivity`: Given only together with `clipping_norm`.
    """

    def ask(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        # The server chooses the message type, and apps also train at `train.ACTION` and `train.default`.
        if not message.metadata.message_type.startswith("train"):
            return call_next(message, context)
        line = LedgerTraining(str(context.run_id), releases, sensitivity, clipping_norm)
        with ledger_lock(ledger), _without_details():
            reason = _reason_to_refuse(ledger, line, budget, delta)
        return call_next(message, context) if reason is None else Message(Error(REFUSED, reason), reply_to=message)

    return ask


@contextmanager
def _without_details() -> Iterator[None]:
    """Raise a block's `InputError` again without its details, which are written only to the client's own log."""
    try:
        yield
    except InputError as error:
        sys.stderr.write(f"fl_audit: {error}\n")
        raise InputError("the ledger of the site cannot be used: the log of its SuperNode says why") from None


def _reason_to_refuse(ledger: Path, ledger_training: LedgerTraining, budget: float, delta: float) -> str | None:
    """Return why a client must not answer in one more round of a run; count the round and return None if it may."""
    counter = ledger.with_name(f"{ledger.name}.rounds") / ledger_training.name
    if all(training.name != ledger_training.name for training in read_ledger(ledger)):
        # The counter is written before the ledger's line, so a line without a counter means that the counter was lost.
        if not counter.exists():
            _write(counter, 0)
        if not add_to_ledger(ledger, ledger_training, budget, delta):
            return f"with this training the site would have spent more than epsilon {budget:g} at delta {delta:g}"
    try:
        answered = int(read_text_file(counter))
    except (OSError, ValueError):
        # Only the site's log shows this message: `_told_at_the_site` replaces it before Flower sends an error.
        raise InputError(f"{counter} cannot be read, or holds no number of rounds: restore it from a copy") from None
    if answered >= ledger_training.terms.rounds:
        return f"the site has answered in {answered} rounds: no more were claimed"
    # Counted by the site itself and before the reply, so that failed rounds count, whatever number the server gives.
    _write(counter, answered + 1)
    return None


def _write(counter: Path, answered: int) -> None:
    write_text(counter, str(answered))
