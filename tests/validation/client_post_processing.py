"""Clients that change their noised contributions before they send them, and others that break the guarantee so."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod
from torch import Tensor

from fl_audit.array_packing import pack, unpack
from fl_audit.clients.app import answer_loss_moments, answer_loss_range, build_app, honest_reply, identify, observe
from fl_audit.federation.federation import Federation
from fl_audit.mechanisms.noise_draws import noise_share
from fl_audit.message_keys import Key, MessageRecordName, NonTrainingQuery
from tests.validation.post_processing import Rule


@dataclass(frozen=True)
class NoisedReply:
    """A client's reply with its noised contribution."""

    message: Message  # the message to the client
    context: Context  # the client's context, with its state
    again: ClientAppCallable  # training of an honest client
    noised: Tensor  # noised contributions, float32 (trials, parameters)
    scale: Tensor  # standard deviation of the noise, or of the contribution where it is inside training, (trials, 1)


ClientRule = Callable[[NoisedReply], Tensor]
"""Function from a reply to what the client sends in the place of its noised contributions."""


def _federation(message: Message) -> Federation:
    return Federation.from_json(str(_config(message)[Key.FEDERATION]))


def _config(message: Message) -> ConfigRecord:
    return message.content.config_records[MessageRecordName.CONFIG]


def _with_noise(message: Message, share: float) -> Message:
    """Return a message that asks for a share of the noise that is claimed."""
    public = _federation(message)
    noise = replace(public.mechanism.noise, multiplier=share * public.mechanism.noise.multiplier)  # type: ignore[type-var]
    changed = copy.deepcopy(message)
    _config(changed)[Key.FEDERATION] = replace(public, mechanism=replace(public.mechanism, noise=noise)).to_json()
    return changed


def _sums(reply: Message) -> Tensor:
    return torch.from_numpy(unpack(reply.content.array_records[MessageRecordName.ARRAYS][Key.SUM]).copy())


def _mod(rule: ClientRule, share: float) -> Mod:
    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if message.metadata.message_type != "train":
            return call_next(message, context)
        noised = _sums(call_next(_with_noise(message, share), context))
        # The accountant of a client counts the steps that it claims.
        reply = call_next(message, context)
        scale = torch.full((len(noised), 1), _federation(message).mechanism.share_scale)
        scale = torch.where(scale > 0, scale, noised.std(dim=1, keepdim=True))
        arrays = reply.content.array_records[MessageRecordName.ARRAYS]
        changed = rule(NoisedReply(message, context, call_next, noised, scale))
        arrays[Key.SUM] = Array(*pack(changed.float().numpy()))
        return reply

    return mod


def clients_changing(rule: ClientRule, share: float = 1.0) -> ClientApp:
    """Return an app whose clients send a function of their noised contributions.

    They add that share of the claimed noise; with 1 the guarantee is kept.
    """
    return build_app(mods=[_mod(rule, share)])


def by_rule(rule: Rule) -> ClientRule:
    """Return what a client sends that changes its noised contribution as a server changes a sum."""
    return lambda reply: rule(reply.noised, reply.scale)


def rounded_at_random(reply: NoisedReply) -> Tensor:
    """Round up or down at random, to a hundredth of the noise."""
    step = 0.01 * reply.scale
    uniforms = np.random.default_rng().random(tuple(reply.noised.shape), dtype=np.float32)
    return torch.floor(reply.noised / step + torch.from_numpy(uniforms)) * step


def with_remainder(reply: NoisedReply) -> Tensor:
    """Round to a hundredth of the noise, and add what was left over to the contribution of the next round."""
    step = 0.01 * reply.scale
    stored = reply.context.state.array_records.get("left")
    noised = reply.noised if stored is None else reply.noised + torch.from_numpy(unpack(stored["left"]).copy())
    rounded = torch.round(noised / step) * step
    reply.context.state["left"] = ArrayRecord({"left": Array(*pack((noised - rounded).numpy()))})
    return rounded


def pushed_by_the_secret(reply: NoisedReply) -> Tensor:
    """Add a hundredth of the noise to all coordinates in trials with D."""
    config = _config(reply.message)
    if Key.MEMBERSHIP not in config:
        return reply.noised
    packed = config[Key.MEMBERSHIP]
    assert isinstance(packed, bytes)
    bits = torch.from_numpy(np.frombuffer(packed, dtype=np.bool_).copy()).float()
    return reply.noised + 0.01 * bits[:, None] * reply.scale


def with_half_of_the_sum(reply: NoisedReply) -> Tensor:
    """Add half of the contribution without noise."""
    nearly_bare = _sums(reply.again(_with_noise(reply.message, 1e-6), reply.context))
    return reply.noised + 0.5 * nearly_bare


def without_some_noise(reply: NoisedReply) -> Tensor:
    """Remove three tenths of the noise, which the client draws again from its seed."""
    config = _config(reply.message)
    trials = config[Key.TRIALS]
    assert isinstance(trials, list)
    draws = [int(trial) for trial in trials]
    seed = int(str(config[Key.NOISE_SEED]))
    server_round = int(str(config[Key.ROUND]))
    return reply.noised - 0.3 * reply.scale * noise_share(seed, draws, server_round, reply.noised.shape[1])


def of_another_training(rule: Rule) -> ClientApp:
    """Return an app with a training of its own, which changes its noised contributions by a rule."""
    training_app = ClientApp()

    @training_app.train()
    def train(message: Message, context: Context) -> Message:
        reply = honest_reply(message, context)
        noised = _sums(reply)
        scale = torch.full((len(noised), 1), _federation(message).mechanism.share_scale)
        reply.content.array_records[MessageRecordName.ARRAYS][Key.SUM] = Array(*pack(rule(noised, scale).numpy()))
        return reply

    training_app.query(NonTrainingQuery.IDENTIFY)(identify)
    training_app.query(NonTrainingQuery.OBSERVE)(observe)
    training_app.query(NonTrainingQuery.LOSS_RANGE)(answer_loss_range)
    training_app.query(NonTrainingQuery.LOSS_MOMENTS)(answer_loss_moments)
    return training_app
