"""Finding and report section on the guarantee of each client, which trains with DP-SGD."""

from dataclasses import asdict, dataclass
from typing import Any

from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.learning.private_training import opacus_epsilon
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.privacy.accounting import Accountant, client_epsilons
from fl_audit.report.mechanism_messages import at_delta
from fl_audit.report.report_elements import ReportContents, Section, Table


@dataclass(frozen=True)
class ClientGuarantee:
    """The guarantee of one client for its own records over all rounds, if clients train with DP-SGD."""

    client: int  # number of the client
    records: int  # number of records of the client
    sampling_rate: float  # probability that a record is in a local step, as recorded by the client's accountant
    steps: int  # number of local steps, as recorded by the client's accountant
    epsilon: float  # epsilon by the accountant of the run
    epsilon_rdp: float  # epsilon by the accountant `rdp`
    epsilon_opacus: float  # epsilon that the client's own Opacus accountant reports


@dataclass(frozen=True)
class ClientGuarantees:
    """The guarantee of each client for its own records, if clients train with DP-SGD."""

    clients: tuple[ClientGuarantee, ...]

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `client_guarantees`, for `summary.json`."""
        return {"client_guarantees": json_of(self.clients)}


def measure_client_guarantees(run: FinishedRun, _: Findings) -> ClientGuarantees | None:
    """Return the guarantee of each client for its own records; None if clients do not train with DP-SGD."""
    table = run.tables.clients
    guarantee = run.plan.guarantee
    mechanism = run.plan.federation.mechanism
    if table is None or guarantee is None or not isinstance(mechanism.contribution, PrivateTraining):
        return None
    # An accountant counts the same steps in every trial.
    last = table[table["round"] == table["round"].max()].groupby("client").max().sort_index()
    shards = [int(records) for records in last["records"]]
    schedule = mechanism.contribution.schedule

    def claimed(accountant: Accountant) -> tuple[float, ...]:
        return client_epsilons(
            shards,
            schedule.batch,
            run.plan.federation.rounds,
            mechanism.noise_multiplier,
            guarantee.delta,
            accountant,
            epochs=schedule.epochs,
            steps=schedule.steps,
        )

    rates = [float(rate) for rate in last["accounted_sampling_rate"]]
    steps = [int(count) for count in last["accounted_steps"]]
    noise = [float(multiplier) for multiplier in last["accounted_noise_multiplier"]]
    epsilons = [
        opacus_epsilon(*counted_training, guarantee.delta) for counted_training in zip(noise, rates, steps, strict=True)
    ]
    columns = (shards, rates, steps, claimed(guarantee.accountant), claimed(Accountant.RDP), epsilons)
    clients = enumerate(zip(*columns, strict=True))
    return ClientGuarantees(tuple(ClientGuarantee(client, *values) for client, values in clients))


def _client_guarantees_tables(guarantees: ClientGuarantees, contents: ReportContents) -> list[Table]:
    guarantee = contents.guarantee
    columns = (
        "Client",
        "Records",
        "Sampling rate of a step",
        "Steps",
        f"Epsilon by {guarantee.accountant} (nats)",
        "Epsilon by rdp (nats)",
        "Epsilon of the Opacus accountant that it kept (nats)",
    )
    rows = tuple(tuple(asdict(client).values()) for client in guarantees.clients)
    title = f"What each client guarantees its own records over all rounds{at_delta(guarantee.delta)}"
    return [Table(title, columns, rows)]


CLIENT_GUARANTEES = Section(
    "client-guarantees",
    "What each client guarantees its own records",
    ClientGuarantees,
    measure_client_guarantees,
    keys=("client_guarantees",),
    tables=_client_guarantees_tables,
)
