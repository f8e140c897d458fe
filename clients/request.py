"""Reading of messages to a client, which contain the public federation, and building of the client's replies.

With a single trial, clients that are called one after the other in one process are trained together for speed. An
engine that has several messages announces them by `announce_calls` in the thread that will answer them. Results do not
change: a contribution is the same to the last bit as if the client were called alone.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from numpy.typing import NDArray

from fl_audit.array_packing import copy_to_tensor, pack, unpack
from fl_audit.array_types import Flags, Floats
from fl_audit.audits.registry import audit_of
from fl_audit.clients.owner_contributions import LocalTrainingInput
from fl_audit.federation.contributions import ContributionByTrial, RoundContext, contributed_together, trains_together
from fl_audit.federation.federation import Federation
from fl_audit.federation.loaded_federation import LoadedFederation, load_federation
from fl_audit.federation.local_dpsgd import ClientRandomness
from fl_audit.federation.locally_randomised_records import randomised_shard
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.message_keys import Key, MessageRecordName, models_key, unpack_participation
from fl_audit.torch_device import to_device


@dataclass(frozen=True)
class Request:
    """A message to a client, with the client's Flower context; its parts are read when they are first used."""

    message: Message
    context: Context

    @cached_property
    def config(self) -> ConfigRecord:
        # Faster than `content.config_records`, which builds a dictionary at each access.
        record = self.message.content[MessageRecordName.CONFIG]
        assert isinstance(record, ConfigRecord)
        return record

    @cached_property
    def arrays(self) -> ArrayRecord:
        record = self.message.content[MessageRecordName.ARRAYS]
        assert isinstance(record, ArrayRecord)
        return record

    @cached_property
    def federation(self) -> LoadedFederation:
        """The federation that the message describes, with its data; the first use sets torch's number of threads."""
        federation = load_federation(Federation.from_json(str(self.config[Key.FEDERATION])))
        torch.set_num_threads(federation.public.threads)
        return federation

    @property
    def client(self) -> int:
        return int(self.context.node_config["partition-id"])

    @property
    def round(self) -> int:
        return int(str(self.config[Key.ROUND]))

    @property
    def trials(self) -> tuple[int, ...]:
        """Numbers of the trials in the message."""
        trials = self.config[Key.TRIALS]
        assert isinstance(trials, list)
        return tuple(int(trial) for trial in trials)

    @property
    def draws(self) -> ClientRandomness:
        """Secret seed of the client's random draws, with the numbers of the trials."""
        return ClientRandomness(int(str(self.config[Key.NOISE_SEED])), self.trials)

    @property
    def own_membership(self) -> TargetMembership | None:
        """Membership of the client's own targets in each trial; None if the client has no targets."""
        targets = len(self.federation.targets_of(self.client))
        return self.membership(targets) if targets else None

    def membership(self, targets: int) -> TargetMembership:
        """Return the membership of `targets` targets, as the message contains it."""
        return TargetMembership.unpack(self._bytes(Key.MEMBERSHIP), targets)

    def coins(self, canaries: int) -> Flags:
        """Return the coins in the message, shape (trials, canaries); a coin says whether a canary is sent."""
        return np.frombuffer(self._bytes(Key.COINS), dtype=np.bool_).reshape(-1, canaries)

    def _bytes(self, key: Key) -> bytes:
        value = self.config[key]
        assert isinstance(value, bytes)
        return value

    def array(self, key: str) -> NDArray[Any]:
        """Return the array that the message holds under a key, read-only."""
        return unpack(self.arrays[key])

    def tensor(self, key: str) -> torch.Tensor:
        """Return a copy of the array that the message holds under a key, on the device of the federation."""
        return to_device(self.array(key), self.federation.public.device)

    @property
    def norms(self) -> torch.Tensor | None:
        """Adaptive clipping norms of the round, one for each trial; None if clipping is not adaptive."""
        return copy_to_tensor(self.array(Key.NORMS)) if Key.NORMS in self.arrays else None

    @cached_property
    def models(self) -> torch.Tensor:
        """Models of all trials in the round, shape (trials, parameters), shared by clients; do not modify them.

        The tensor is kept between client calls if there is a single trial, or on a graphics card. With many trials on
        the CPU it would take too much memory.
        """
        sent = self.arrays[models_key(0)].data
        if _KEPT.models is not None and _KEPT.sent is sent:
            return _KEPT.models
        models = self.tensor(models_key(0))
        _KEPT.sent, _KEPT.models = (sent, models) if len(models) == 1 or models.is_cuda else (None, None)
        return models

    @property
    def training_input(self) -> LocalTrainingInput:
        """Input of the client's training in this round."""
        federation = self.federation
        models = self.models
        norms = self.norms
        round_context = RoundContext(self.round, None if norms is None else norms.to(federation.public.device))
        randomised_records = (
            None
            if federation.public.local_randomizer is None
            else randomised_shard(federation, self.client, self.draws)
        )
        taking_part = None
        if Key.PARTICIPATION in self.config:
            units = len(federation.units_of(self.client))
            taking_part = unpack_participation(self._bytes(Key.PARTICIPATION), len(models), units)
            taking_part = federation.by_record(self.client, taking_part)
        return LocalTrainingInput(models, round_context, taking_part, randomised_records)

    def reply(
        self, arrays: Mapping[str, NDArray[Any] | None], extra_config: Mapping[str, str] | None = None
    ) -> Message:
        """Return the reply to this message, with the numbers of the same round and the same trials."""
        packed = ArrayRecord({key: Array(*pack(value)) for key, value in arrays.items() if value is not None})
        config = ConfigRecord({**self.about, **(extra_config or {})})
        return Message(
            RecordDict({MessageRecordName.ARRAYS: packed, MessageRecordName.CONFIG: config}), reply_to=self.message
        )

    @property
    def about(self) -> dict[str, Any]:
        """Numbers of the round and of the batch of trials, keyed as in messages."""
        return {Key.ROUND: self.config[Key.ROUND], Key.BATCH: self.config[Key.BATCH]}

    def losses(self) -> list[tuple[Floats, Flags]]:
        """Return the models' losses on the client's records in several parts: losses (trials, n) with a mask (trials,).

        The mask marks the trials in which the client has the records of the part. The first part has the records of all
        trials. The next parts are the target's records and, if there is one, the target's replacement.
        """
        federation = self.federation
        models = self.tensor(models_key(0))
        membership = self.own_membership
        everywhere = np.ones(len(models), dtype=np.bool_)
        losses = [(federation.losses(models, federation.shard_without_targets(self.client)), everywhere)]
        if membership is not None:
            losses_of = partial(federation.losses, models)
            losses += audit_of(federation.public).own_losses(federation, self.client, membership, losses_of)
        return losses


class _ThreadCache(threading.local):
    """Data that a thread keeps between client calls: the latest models, and contributions computed ahead."""

    def __init__(self) -> None:
        self.models: torch.Tensor | None = None  # models of the latest message
        self.sent: bytes | None = None  # the bytes from which these models were read
        # By message ID: clients whose calls follow, and contributions of clients that were trained ahead.
        self.waiting = dict[str, int]()
        self.contributions = dict[str, ContributionByTrial]()


_KEPT = _ThreadCache()


def announce_calls(calls: Sequence[tuple[Message, Context]]) -> None:
    """Announce the client calls that this thread makes next, so that the called clients can train together.

    They train together only if all announced calls have the same round, federation and models, and if their batch has a
    single trial. Each announcement replaces the previous one.
    """
    trained = [call for call in calls if call[0].metadata.message_type == "train"]
    # Messages of other apps contain no federation, and their clients are not trained together.
    requests = [
        Request(*call) for call in trained if Key.FEDERATION in call[0].content.get(MessageRecordName.CONFIG, {})
    ]
    about = {(request.config[Key.FEDERATION], *request.about.values()) for request in requests}
    arrays_seen = {id(request.arrays[models_key(0)].data) for request in requests}
    is_one = len(about) == len(arrays_seen) == 1
    _KEPT.waiting = {request.message.metadata.message_id: request.client for request in requests} if is_one else {}
    _KEPT.contributions = {}


def trained_together(
    request: Request, training_input: LocalTrainingInput, alone: Callable[[], ContributionByTrial]
) -> ContributionByTrial:
    """Return a client's contribution, if possible from a joint training with the other clients of its announced group.

    `alone`: It is called if no joint training is possible.
    """
    identity = request.message.metadata.message_id
    cohort = _KEPT
    federation = request.federation
    if identity in cohort.waiting:
        # Canary clients, which are numbered after the clients with records, do not train.
        clients_with_records = [client for client in range(federation.public.clients) if client != federation.victim]
        clients = {message: client for message, client in cohort.waiting.items() if client in clients_with_records}
        cohort.waiting = {}
        if (
            len(clients) > 1
            and len(training_input.models) == 1
            and trains_together(federation, tuple(clients.values()))
        ):
            # If joint training fails, each client trains alone, and only the faulty one fails.
            with suppress(Exception):
                contributions = contributed_together(
                    federation, tuple(clients.values()), training_input.models, training_input.round_context
                )
                cohort.contributions = dict(zip(clients, contributions, strict=True))
    return cohort.contributions.pop(identity, None) or alone()
