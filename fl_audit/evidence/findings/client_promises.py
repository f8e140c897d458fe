"""What every client promises its own records where clients train privately, and what its accountant has counted."""

from dataclasses import asdict, dataclass
from typing import Any

from fl_audit.evidence.findings.found import Findings
from fl_audit.evidence.finished_run import FinishedRun
from fl_audit.learning.private_training import opacus_epsilon
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.client_side import client_epsilons


@dataclass(frozen=True)
class ClientPromise:
    """The promise of one client over all rounds."""

    client: int  # number of the client
    records: int  # size of its shard
    sampling_rate: float  # probability with which a record was in a step, as its accountant counted
    steps: int  # steps that its accountant counted
    epsilon: float  # what it promises, by the accountant of the run
    epsilon_rdp: float  # the same by `rdp`
    epsilon_opacus: float  # what the accountant of Opacus names that it kept


@dataclass(frozen=True)
class ClientPromises:
    """The promises of all clients."""

    clients: tuple[ClientPromise, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the entry `client_promises`."""
        return {"client_promises": [asdict(client) for client in self.clients]}

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest epsilon."""
        each = [client.epsilon for client in self.clients]
        return min(each), max(each)


def measure_client_promises(run: FinishedRun, _: Findings) -> ClientPromises | None:
    """Return what every client promises; None where clients do not train privately."""
    table, promise, law = run.tables.clients, run.facts.guarantee, run.facts.game.law
    if table is None or promise is None or not isinstance(law.contribution, PrivateTraining):
        return None
    # An accountant counts the same steps in every world.
    last = table[table["round"] == table["round"].max()].groupby("client").max().sort_index()
    shards, schedule = [int(records) for records in last["records"]], law.contribution.schedule

    def promised(accountant: Accountant) -> tuple[float, ...]:
        return client_epsilons(
            shards, schedule.batch, run.facts.game.rounds, law.noise_multiplier, promise.delta, accountant,
            epochs=schedule.epochs, steps=schedule.steps,
        )  # fmt: skip

    rates = [float(rate) for rate in last["accounted_sampling_rate"]]
    steps = [int(count) for count in last["accounted_steps"]]
    noise = [float(one) for one in last["accounted_noise_multiplier"]]
    kept = [opacus_epsilon(*counted, promise.delta) for counted in zip(noise, rates, steps, strict=True)]
    columns = (shards, rates, steps, promised(promise.accountant), promised(Accountant.RDP), kept)
    return ClientPromises(
        tuple(ClientPromise(client, *values) for client, values in enumerate(zip(*columns, strict=True)))
    )
