"""The Flower ClientApp of all clients: data owners, among them the victim and the insider, and canary clients.

The victim holds the unit in which D and D' differ, and the insider is an adversarial client. Every message contains the
public federation, from which a client derives its records. Therefore the same app runs on any engine.
"""

import copy
import faulthandler
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import assert_never

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict, UserConfig
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod

from fl_audit.array_types import Floats
from fl_audit.audits.audit import ClientRole, ReleaseQueryKind
from fl_audit.audits.canaries.canary_contributions import canary_contribution, canary_records, canary_scores
from fl_audit.audits.identifiability import identifiability_adversary
from fl_audit.audits.membership.insider import ascent_contribution, observe_targets
from fl_audit.audits.registry import audit_of
from fl_audit.clients.owner_contributions import contribute, contribute_as_victim, contribute_members, with_noise
from fl_audit.clients.request import Request, trained_together
from fl_audit.clients.request import announce_calls as announce_calls
from fl_audit.errors import InputError
from fl_audit.federation.local_dpsgd import private_steps, trained_privately
from fl_audit.federation.observed_rounds import ObservedRound
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.learning.glibc_allocator import ROUNDS_BETWEEN_TRIMS, give_back_freed_memory
from fl_audit.learning.private_training import GradientCanaries
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.message_keys import Key, MessageRecordName, NonTrainingQuery
from fl_audit.privacy.accounting_enums import SensitivityKind
from fl_audit.released_model import loss_moments as moments
from fl_audit.torch_device import to_numpy


def build_app(mods: list[Mod] | None = None) -> ClientApp:
    """Return the ClientApp of all clients.

    `mods` are Flower mods that wrap training, for example to inject faults in a test.
    """
    app = ClientApp()
    app.train(mods=[_within_time_limit, *(mods or [])])(train)
    app.query(NonTrainingQuery.IDENTIFY)(identify)
    app.query(NonTrainingQuery.OBSERVE, mods=[_within_time_limit])(observe)
    app.query(NonTrainingQuery.LOSS_RANGE, mods=[_within_time_limit])(answer_loss_range)
    app.query(NonTrainingQuery.LOSS_MOMENTS, mods=[_within_time_limit])(answer_loss_moments)
    return app


def train(message: Message, context: Context) -> Message:
    """Return the reply to a training message: the client's contribution in each trial, or what a replay gives."""
    reply = _given_reply(message)
    return honest_reply(message, context) if reply is None else reply


def honest_reply(message: Message, context: Context) -> Message:
    """Return the reply with the client's contribution in each trial, e.g. clipped gradient sums."""
    request = Request(message, context)
    federation = request.federation
    client = request.client
    mechanism = request.federation.public.mechanism
    if request.round % ROUNDS_BETWEEN_TRIMS == 0:
        give_back_freed_memory()
    role = audit_of(federation.public).role(federation, client)
    if role is ClientRole.CANARY:
        return _send_canary(request, client - federation.public.clients)
    if isinstance(mechanism.contribution, PrivateTraining):
        return _train_privately(request)
    training_input = request.training_input
    membership = request.own_membership
    sensitivity = None
    if role is ClientRole.OWNER_OF_TARGETS:
        none = TargetMembership(np.empty((len(training_input.models), 0), dtype=np.bool_))
        contribution = contribute_members(
            federation, client, training_input, none if membership is None else membership
        )
    elif role is ClientRole.VICTIM:
        assert membership is not None, "the victim holds a target"
        contribution, sensitivity = contribute_as_victim(federation, training_input, membership)
    elif training_input.randomised_records is not None:
        contribution = contribute(federation, client, training_input)
    else:
        contribution = trained_together(request, training_input, lambda: contribute(federation, client, training_input))
    total = contribution.total
    if federation.public.ascent > 0 and client == federation.insider:
        total = total + ascent_contribution(federation, training_input.models)
    if mechanism.clients_add_noise:
        total = with_noise(federation, total, request.draws, request.round)
    within = None if contribution.within is None else contribution.within.cpu().numpy()
    released_sensitivity = sensitivity if mechanism.scaling is SensitivityKind.LOCAL else None
    return request.reply({Key.SUM: to_numpy(total), Key.WITHIN: within, Key.LOCAL_SENSITIVITY: released_sensitivity})


def _train_privately(request: Request) -> Message:
    """Return the reply to a round of local DP-SGD: updates of all trials, and the state of the client's accountant."""
    federation = request.federation
    client = request.client
    draws = request.draws
    canaries = None
    # The victim trains on x in trials in which x is a member; other clients have no target.
    is_in = None if request.own_membership is None else request.own_membership.bits
    if Key.COINS in request.config:
        records = canary_records(federation, request.round, draws.trials)
        coins = request.coins(federation.public.canaries)
        canaries = GradientCanaries(records, coins, draws.of_round(request.round, for_canaries=True))
    own_accountant = _own_accountant(request)
    updates = trained_privately(
        federation, client, request.models, request.round, draws, is_in, own_accountant, canaries
    )
    accountants: dict[str, str] = {Key.ACCOUNTANT: updates.accountant}
    request.context.state[MessageRecordName.OWN_ACCOUNTANT] = ConfigRecord(request.about | accountants)
    return request.reply({Key.SUM: to_numpy(updates.updates), Key.TIMES: updates.times}, accountants)


def _send_canary(request: Request, canary: int) -> Message:
    """Return the reply of a canary client, which has no data.

    In trials in which the coin puts the canary in, the reply contains the canary. In other trials it contains zeros, or
    the opposite vector under the replacement relation.
    """
    coins = request.coins(1)[:, 0]
    contribution = canary_contribution(request.federation, canary, request.round, request.trials, coins, request.norms)
    within = None if contribution.within is None else contribution.within.numpy()
    return request.reply({Key.SUM: contribution.total.numpy(), Key.WITHIN: within})


def _own_accountant(request: Request) -> str | None:
    """Return the state of the client's own privacy accountant before a round, as text; None before the first round.

    It is computed anew if the stored state belongs to another round or trial batch.
    """
    stored = request.context.state.config_records.get(MessageRecordName.OWN_ACCOUNTANT)
    if stored is not None and (stored[Key.BATCH], stored[Key.ROUND]) == (request.config[Key.BATCH], request.round - 1):
        return str(stored[Key.ACCOUNTANT])
    if request.round == 1:
        return None
    records = len(request.federation.shards[request.client])
    return private_steps(request.federation.public.mechanism).accountant_after(request.round - 1, records)


def identify(message: Message, context: Context) -> Message:
    """Load the data of this client, and return a reply with its partition number.

    The server recognises the client by this number, because the node IDs of clients differ between runs.
    """
    request = Request(message, context)
    _ready = request.federation  # loaded before the first round
    config = ConfigRecord({Key.PARTITION: request.client})
    return Message(RecordDict({MessageRecordName.CONFIG: config}), reply_to=message)


def observe(message: Message, context: Context) -> Message:
    """Return the reply of an insider (adversarial client) with its evidence from a release, such as log-odds."""
    request = Request(message, context)
    federation = request.federation
    client = request.client
    if client != federation.insider:
        raise InputError(f"client {client} was shown a release, the insider is client {federation.insider}")
    observed_round = ObservedRound.of(request.round, {key: request.tensor(key) for key in request.arrays})
    match audit_of(federation.public).query(federation.public):
        case ReleaseQueryKind.CANARIES:
            return request.reply({Key.CANARIES: canary_scores(federation, observed_round, request.trials)})
        case ReleaseQueryKind.TARGETS:
            targets_membership = request.membership(federation.public.targets)
            return request.reply(_of_targets(*observe_targets(federation, observed_round, targets_membership)))
        case ReleaseQueryKind.CANDIDATES:
            return request.reply(_of_targets(*observe_targets(federation, observed_round, None)))
        case ReleaseQueryKind.SCORES:
            return request.reply({Key.SCORE: identifiability_adversary.score(federation, observed_round)})
        case ReleaseQueryKind.LOG_ODDS:
            reply = identifiability_adversary.observe(federation, observed_round)
            weighed: dict[str, Floats] = {Key.LOG_ODDS: reply.increment, Key.LOCAL_SENSITIVITY: reply.local_sensitivity}
            return request.reply({**weighed, Key.NOISE_SCORES: reply.scores, Key.RESIDUALS: reply.residuals.as_array()})
        case ReleaseQueryKind.NOTHING:
            raise InputError(f"client {client} was shown a release, and nobody is asked about any")
        case query:
            assert_never(query)


def _of_targets(added: Floats, signal: Floats, noise: Floats) -> dict[str, Floats | None]:
    """Return an insider's evidence on every target, keyed as in messages; all arrays have the shape (trials, targets).

    `added` is what the round adds to the log-odds. `signal` and `noise` are measured along the target's contribution,
    in standard deviations of the round's noise.
    """
    return {Key.LOG_ODDS: added, Key.LOCAL_SENSITIVITY: signal, Key.NOISE_SCORES: noise}


# Data owners send summaries of their shard's losses on a release in each trial, and never single losses. The victim's
# records depend on its secret bit in each trial, as in training. Its summaries are sums over the whole shard and go
# only to the server, which also receives the victim's contribution in that trial. Other clients receive only the range
# of the losses of all members and the population.


def answer_loss_range(message: Message, context: Context) -> Message:
    """Return a data owner's reply with the number, minimum and maximum of its losses under each trial's model."""
    request = Request(message, context)
    joint_range = moments.joint_range(
        [moments.where_trained(moments.range_of(losses), is_member) for losses, is_member in request.losses()]
    )
    return request.reply({Key.COUNT: joint_range.count, Key.LOW: joint_range.low, Key.HIGH: joint_range.high})


def answer_loss_moments(message: Message, context: Context) -> Message:
    """Return a data owner's reply with the moments of its scores, transformed losses, under each trial's model."""
    request = Request(message, context)
    low, high = request.array(Key.LOW), request.array(Key.HIGH)
    owner_moments = [
        moments.where_trained(moments.moments_of(losses, low, high), is_member)
        for losses, is_member in request.losses()
    ]
    joint_moments = moments.joint_moments(owner_moments)
    summary: dict[str, Floats | None] = {
        Key.COUNT: joint_moments.count,
        Key.MEAN: joint_moments.mean,
        Key.SQUARES: joint_moments.squares,
    }
    return request.reply(summary)


def _within_time_limit(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Flower mod that ends the process of a Ray client whose call exceeds the time limit in the message.

    The timer runs in C, so it also ends a call that holds the GIL. The local engine has its own time limit.
    """
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized() or ray.get_runtime_context().get_actor_id() is None:
        return call_next(message, context)
    seconds = Request(message, context).config[Key.TIME_LIMIT]
    faulthandler.dump_traceback_later(float(str(seconds)), exit=True)
    try:
        return call_next(message, context)
    finally:
        faulthandler.cancel_dump_traceback_later()


class _Replay(threading.local):
    """The reply that this thread gives in the place of training, and whether it was asked for."""

    content: RecordDict | None = None
    is_used: bool = False


_REPLAY = _Replay()


def _given_reply(message: Message) -> Message | None:
    """Return the reply to a training message that a replay gives in the place of training; None outside a replay."""
    if _REPLAY.content is None:
        return None
    _REPLAY.is_used = True
    return Message(copy.deepcopy(_REPLAY.content), reply_to=message)


@contextmanager
def _giving(content: RecordDict) -> Iterator[_Replay]:
    _REPLAY.content, _REPLAY.is_used = content, False
    try:
        yield _REPLAY
    finally:
        _REPLAY.content = None


@dataclass(frozen=True)
class ClientReplay:
    """A client app of somebody else that is called again in this process, as a client that was not called before.

    It gets a noised contribution in the place of that which its training computes, to see what it makes of it: an app
    may round, clamp or project what its training returns.
    """

    app: ClientApp
    clients: int  # number of clients

    def honest_reply(self, message: Message, client: int) -> RecordDict:
        """Return what an honest client replies to a training message, which holds its noised contribution."""
        return honest_reply(copy.deepcopy(message), self._context(client)).content

    def sent(self, message: Message, client: int, honest_reply: RecordDict) -> RecordDict | None:
        """Return what the app makes of an honest client's reply; None if it does not train by our training."""
        with _giving(honest_reply) as replay:
            reply = self.app(message=copy.deepcopy(message), context=self._context(client))
            return reply.content if replay.is_used and MessageRecordName.ARRAYS in reply.content else None

    def _context(self, client: int) -> Context:
        config = UserConfig({"partition-id": client, "num-partitions": self.clients})
        return Context(run_id=1, node_id=client, node_config=config, state=RecordDict(), run_config=UserConfig())


app = build_app()
