"""The messages of a round to clients: requests for contributions, and what every message of a federation says."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from fl_audit.array_packing import pack
from fl_audit.array_types import Integers
from fl_audit.federation.federation import Federation
from fl_audit.message_keys import Key, MessageRecordName, models_key
from fl_audit.strategies.contributors import CalledClients, ClientRoles
from fl_audit.strategies.queries import TRAIN, BatchTrainingState, More
from fl_audit.strategies.reply_checks import ReplyIdentity
from fl_audit.strategies.secret_draws import SeededChallenger
from fl_audit.trial_batches import TrialBatch


@dataclass(eq=False)
class RoundMessages:
    """Writer of the messages of a federation to its clients, which notes the round of each."""

    public: Federation  # public facts of the federation, which every message holds
    roster: ClientRoles  # nodes and targets of the clients
    challenger: SeededChallenger  # source of membership and of the seeds of clients' noise
    time_limit: float  # seconds that a client may take for one message
    # Round of the latest message, by client, kind and batch.
    written: dict[ReplyIdentity, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._federation_json = self.public.to_json()

    def to_train(
        self, batch: TrialBatch, server_round: int, models: Array, state: BatchTrainingState, call: CalledClients
    ) -> Iterator[Message]:
        """Yield the requests for the contributions of all called clients to a batch of trials.

        `models` are those of all trials of the batch, and `state` is what the batch has come to.
        """
        whole = ArrayRecord({models_key(0): models} | _norms(state, slice(None)))
        common = self._content(batch, server_round, whole, {})  # for all clients without settings of their own
        for client in call.asked:
            trials, arrays, settings = list(batch.trials), whole, dict(client.more)
            if client.rows is not None and len(client.rows) < batch.count:
                trials = [trials[row] for row in client.rows]
                trial_models = state.models[-1].numpy()[client.rows]
                arrays = ArrayRecord({models_key(0): Array(*pack(trial_models))} | _norms(state, client.rows))
            if self.public.clients_draw:
                settings |= {Key.NOISE_SEED: self.challenger.noise_seed(client.client), Key.TRIALS: trials}
            settings |= self._membership(client.client, trials)
            is_common = arrays is whole and not settings
            content = common if is_common else self._content(batch, server_round, arrays, settings)
            yield self._sent(client.client, TRAIN, batch, server_round, content)

    def message(
        self, client: int, kind: str, batch: TrialBatch, server_round: int, arrays: ArrayRecord, settings: More
    ) -> Message:
        """Return a message of a kind to a client about a batch of trials, with arrays and settings."""
        return self._sent(client, kind, batch, server_round, self._content(batch, server_round, arrays, settings))

    def owner_message(
        self, client: int, kind: str, batch: TrialBatch, server_round: int, arrays: ArrayRecord, settings: More
    ) -> Message:
        """Return a message that also says in which trials the client's targets are in the data."""
        settings_told = {**settings, **self._membership(client, batch.trials)}
        return self.message(client, kind, batch, server_round, arrays, settings_told)

    def _membership(self, client: int, trials: Sequence[int]) -> More:
        """Return a message entry on the trials in which a client's targets are in the data; {} without targets."""
        targets = self.roster.targets.get(client)
        return {Key.MEMBERSHIP: self.challenger.membership(trials).of_targets(targets).pack()} if targets else {}

    def _content(self, batch: TrialBatch, server_round: int, arrays: ArrayRecord, settings: More) -> RecordDict:
        config = ConfigRecord({Key.FEDERATION: self._federation_json, Key.ROUND: server_round, Key.BATCH: batch.name})
        config.update({Key.TIME_LIMIT: float(self.time_limit), **settings})
        return RecordDict({MessageRecordName.ARRAYS: arrays, MessageRecordName.CONFIG: config})

    def _sent(self, client: int, kind: str, batch: TrialBatch, server_round: int, content: RecordDict) -> Message:
        self.written[ReplyIdentity(client, kind, batch.name)] = server_round
        return Message(content, self.roster.nodes[client], kind)


def _norms(state: BatchTrainingState, rows: Integers | slice) -> dict[str, Array]:
    """Return a message entry with the adaptive clipping norms of some trials; {} if the norm is fixed."""
    return {} if state.norms is None else {Key.NORMS: Array(*pack(state.norms.numpy()[rows]))}
