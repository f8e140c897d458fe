"""Noise that clients add: what is left of it, and of the promise, where clients tell each other their noise."""

from dataclasses import asdict

from fl_audit.evidence.findings.found import finite
from fl_audit.evidence.findings.promise import ColludersNumbers, Left, measure_colluders
from fl_audit.report.finding import RunContents, Section, Table
from fl_audit.report.wording import number_text


def _sentence(numbers: ColludersNumbers, _: RunContents) -> str:
    alone, most, server = (_faced(one) for one in (numbers.groups[0], numbers.groups[-1], numbers.server))
    return (
        "Every client knows the noise that it added itself, and clients who trust each other can put theirs together "
        f"and subtract it. A client alone faces a noise multiplier of {alone}, all clients but one {most}; the "
        f"honest-but-curious server, which sees every contribution by itself, {server}."
    )


def _faced(left: Left) -> str:
    return f"{number_text(left.noise_multiplier, 3)} (epsilon {number_text(finite(left.epsilon), 3)})"


def _tables(numbers: ColludersNumbers, contents: RunContents) -> list[Table]:
    promise = contents.promise
    epsilon = f"Epsilon at delta {promise.delta:g} ({promise.accountant}, nats)"
    columns = ("Who knows a part of the noise", "Noise multiplier faced", epsilon)
    rows = [(_name(one.clients), one.noise_multiplier, finite(one.epsilon)) for one in numbers.groups]
    server = ("the server, which sees every contribution by itself", *list(asdict(numbers.server).values())[1:])
    title = "What is left of noise that clients add, where clients tell each other theirs"
    return [Table(title, columns, (*rows, server))]


def _name(clients: int) -> str:
    return "a client alone, its own" if clients == 1 else f"{clients:,} clients together"


COLLUDERS = Section(
    name="colluders", title="What clients who collude take off the promise", numbers=ColludersNumbers,
    measure=measure_colluders, keys=("colluders",), sentence=_sentence, tables=_tables,
)  # fmt: skip
