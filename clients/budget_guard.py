"""A client that sends nothing once the privacy budget of its site is spent.

    app = ClientApp(mods=[budget_mod(Path("/var/ledger"), StatedReleases(...), budget=8.0, delta=1e-5)])

Before the first round of a run the privacy cost of the whole run is added to the site's ledger. If it would exceed the
budget, nothing is added, and every training message of the run is answered with an error. Later rounds only count.

A trial of an audit counts as a round, because a server could call any round a trial. An audit in place plays hundreds
of trials: audit an app without this mod.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flwr.app import Context, Error, Message
from flwr.clientapp.typing import ClientAppCallable, Mod

from fl_audit.atomic_files import write_text
from fl_audit.errors import InputError
from fl_audit.privacy.ledger import LedgerTraining, add_to_ledger, ledger_lock, read_ledger
from fl_audit.privacy.stated_releases import StatedReleases

REFUSED = 451  # code of the error that a client answers with


def budget_mod(
    ledger: Path,
    terms: StatedReleases,
    budget: float,
    delta: float,
    sensitivity: float | None = None,
    clipping_norm: float | None = None,
) -> Mod:
    """Return a mod that answers a training message with an error where it would exceed the site's privacy budget.

    Parameters
    ----------
    ledger
        Path of the ledger file of the site, which all its trainings share.
    terms
        Terms that limit what a training of this app releases.
    budget
        Largest epsilon of all trainings together, above 0.
    delta
        Delta at which the budget holds, above 0 and below 1.
    sensitivity
        Sensitivity of the training, see `LedgerTraining`.
    clipping_norm
        Clipping norm of the training, see `LedgerTraining`.

    Raises
    ------
    InputError
        Raised in a round, if the ledger, or the file that counts its rounds, is damaged or missing.
    """

    def ask(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        # The server chooses the name: an app trains for `train.ACTION` as well, and `train.default` is its plain train.
        if not message.metadata.message_type.startswith("train"):
            return call_next(message, context)
        line = LedgerTraining(str(context.run_id), terms, sensitivity, clipping_norm)
        with ledger_lock(ledger), _told_at_the_site():
            reason = _refusal(ledger, line, budget, delta)
        return call_next(message, context) if reason is None else Message(Error(REFUSED, reason), reply_to=message)

    return ask


@contextmanager
def _told_at_the_site() -> Iterator[None]:
    """Write an `InputError` about the site's files to the site's own log, and raise one without details instead.

    Flower sends the text of exceptions to the server, which must not learn the content of the site's files.

    Raises
    ------
    InputError
        If the block raises one.
    """
    try:
        yield
    except InputError as error:
        sys.stderr.write(f"fl_audit: {error}\n")
        raise InputError("the ledger of the site cannot be used: the log of its SuperNode says why") from None


def _refusal(ledger: Path, line: LedgerTraining, budget: float, delta: float) -> str | None:
    """Count a further round of a training and return None, or return the reason to refuse the round.

    The caller holds the ledger's lock.

    Raises
    ------
    InputError
        If the file that counts the rounds is missing or damaged.
    """
    counter = ledger.with_name(f"{ledger.name}.rounds") / line.name
    if all(one.name != line.name for one in read_ledger(ledger)):
        # The counter stands before the line does: where it is missing beside a line, it was lost.
        if not counter.exists():
            _write(counter, 0)
        if not add_to_ledger(ledger, line, budget, delta):
            return f"with this training the site would have spent more than epsilon {budget:g} at delta {delta:g}"
    try:
        answered = int(counter.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        # Flower sends this line to the server: nothing of what a file of the site holds stands in it.
        raise InputError(f"{counter} cannot be read, or holds no number of rounds: restore it from a copy") from None
    if answered >= line.terms.rounds:
        return f"the site has answered in {answered} rounds: no more were claimed"
    # Counted before it is sent, and by the site itself: a round that fails counts, whatever the server calls it.
    _write(counter, answered + 1)
    return None


def _write(counter: Path, answered: int) -> None:
    write_text(counter, str(answered))
