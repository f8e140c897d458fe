"""A client that sends nothing once the privacy budget of its site is spent.

    app = ClientApp(mods=[budget_mod(Path("/var/ledger"), TrainingTerms(...), budget=8.0, delta=1e-5)])

Before the first round of a run the site's ledger gets a line for the whole of it, or, where that would spend more than
the budget, none: then every message of the run is answered by an error that says so. Light after the first round.

Whatever a server calls a game is a round here: it could call any round one. An audit in place, which plays hundreds, is
for an app without this modifier.
"""

from pathlib import Path

from flwr.app import Context, Error, Message
from flwr.clientapp.typing import ClientAppCallable, Mod

from fl_audit.errors import InputError
from fl_audit.privacy.ledger import LedgerLine, add_to_ledger, read_ledger
from fl_audit.privacy.terms import TrainingTerms
from fl_audit.whole_files import whole_file

REFUSED = 451  # code of the error that a client answers with


def budget_mod(
    ledger: Path,
    terms: TrainingTerms,
    budget: float,
    delta: float,
    sensitivity: float | None = None,
    clipping_norm: float | None = None,
) -> Mod:
    """Return a mod that answers a message to train with an error where it would spend more than the site's budget.

    Parameters
    ----------
    ledger
        File of the site, shared by all its trainings.
    terms
        What a training of this app releases; more rounds than these are refused too.
    budget
        Largest epsilon of all trainings together at `delta`, above 0.
    delta
        Delta of all trainings together.
    sensitivity, clipping_norm
        As for `LedgerLine`.

    Raises
    ------
    InputError
        In a round, if the ledger or the number of rounds beside it is damaged.
    """

    def ask(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        # The server chooses the name: an app trains for `train.ACTION` as well, and `train.default` is its plain train.
        if not message.metadata.message_type.startswith("train"):
            return call_next(message, context)
        run = str(context.run_id)
        if all(line.name != run for line in read_ledger(ledger)):
            line = LedgerLine(run, terms, sensitivity, clipping_norm)
            if not add_to_ledger(ledger, line, budget, delta):
                reason = f"with this training the site would have spent more than epsilon {budget:g} at delta {delta:g}"
                return Message(Error(REFUSED, reason), reply_to=message)
        answered = _answered(ledger, run)
        if answered >= terms.rounds:
            reason = f"the site has answered in {answered} rounds: no more were promised"
            return Message(Error(REFUSED, reason), reply_to=message)
        # Counted before it is sent, and by the site itself: a round that fails counts, whatever the server calls it.
        with whole_file(_counter(ledger, run)) as file:
            file.write_text(str(answered + 1), encoding="utf-8")
        return call_next(message, context)

    return ask


def _counter(ledger: Path, run: str) -> Path:
    """Return the file with the number of rounds of a run in which the site has answered."""
    return ledger.with_name(f"{ledger.name}.rounds") / run


def _answered(ledger: Path, run: str) -> int:
    path = _counter(ledger, run)
    try:
        return int(path.read_text(encoding="utf-8")) if path.exists() else 0
    except (OSError, ValueError) as error:
        raise InputError(f"{path} holds no number of rounds: {error}") from None
