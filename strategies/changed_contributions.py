"""Tell noised contributions from what a client makes of them: whether what it sends follows from the noised one.

A client of somebody else may round, clamp or project its contribution after it has added noise. This is asked by
replay, to the last bit: its app is called again with the contribution and the noise of an honest client in the place of
those that it computes. If what it sends follows from the noised contribution alone, it comes out again; with less
noise, or with another sum, it does not. In further replays the message names the other secret in every trial, or
another seed of the noise, or another client is called. If what is sent depends on one of them, something else comes
out.
"""

import math
from collections.abc import Mapping
from typing import Protocol

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.app.typing import ConfigRecordValues

from fl_audit.array_packing import unpack
from fl_audit.array_types import Floats, Floats32
from fl_audit.message_keys import Key, MessageRecordName
from fl_audit.strategies.noised_sums import ReleaseOrigin

_FEW = 0.01  # largest share of values that differ because the last bits of two computations do
_DEVIATIONS = 8.0  # of a sum of independent symmetric numbers; it exceeds them with probability below 1e-13
_TIMES_ITS_CHANGE = 5.0  # a rule moves what it changes by less than this many times its own change, whatever it draws


class ReplayedClient(Protocol):
    """Protocol of a client app that can be called again."""

    @property
    def clients(self) -> int:
        """Number of clients."""

    def honest_reply(self, message: Message, client: int) -> RecordDict:
        """Return what an honest client replies to a training message."""

    def sent(self, message: Message, client: int, honest_reply: RecordDict) -> RecordDict | None:
        """Return what the app makes of an honest reply; None if it does not train by our training."""


def origin_of_contribution(
    replayed_client: ReplayedClient, message: Message, client: int, server_round: int, sent: Floats32
) -> ReleaseOrigin:
    """Return what a client's contribution to a round follows from.

    It is NOISED_SUM if it is the noised contribution, POST_PROCESSED if it follows from that alone, FOLLOWS_SECRET if
    it follows from the secret too, OWN_RULE if the rule depends on the client, carries something over from earlier
    rounds or draws random numbers, UNKNOWN if it does not follow from the noised contribution, and NOT_A_SUM if the app
    cannot be replayed.

    Parameters
    ----------
    replayed_client
        The app of the client.
    message
        The training message of the round.
    client
        Number of the client.
    server_round
        Number of the round, from 1.
    sent
        What the client sent, (trials, parameters).
    """
    try:
        honest_reply = replayed_client.honest_reply(message, client)
        noised = _sums(honest_reply)
        if noised is not None and np.array_equal(noised, sent):
            return ReleaseOrigin.NOISED_SUM
        first, second = (_sums(replayed_client.sent(message, client, honest_reply)) for _ in range(2))
    except Exception:  # an app of somebody else may need anything that a replay lacks
        return ReleaseOrigin.NOT_A_SUM
    if noised is None or first is None or second is None or first.shape != sent.shape:
        return ReleaseOrigin.NOT_A_SUM
    if not np.array_equal(first, sent):
        is_breach = _is_another_contribution(sent, noised, first, second, server_round)
        return ReleaseOrigin.UNKNOWN if is_breach else ReleaseOrigin.OWN_RULE
    if not np.array_equal(second, sent):
        return ReleaseOrigin.OWN_RULE
    if not _comes_out(replayed_client, _with_other_secret(message), client, honest_reply, sent):
        return ReleaseOrigin.FOLLOWS_SECRET
    other_seed = _with_other_seed(message)
    if not _comes_out(replayed_client, other_seed, client, honest_reply, sent):
        is_breach = _follows_noise(replayed_client, other_seed, client, honest_reply, sent)
        return ReleaseOrigin.UNKNOWN if is_breach else ReleaseOrigin.OWN_RULE
    is_of_client = not _comes_out(replayed_client, message, (client + 1) % replayed_client.clients, honest_reply, sent)
    return ReleaseOrigin.OWN_RULE if is_of_client else ReleaseOrigin.POST_PROCESSED


def _sums(content: RecordDict | None) -> Floats32 | None:
    """Return the contributions in a reply, (trials, parameters); None if there is no reply."""
    if content is None:
        return None
    arrays = content[MessageRecordName.ARRAYS]
    assert isinstance(arrays, ArrayRecord)
    return unpack(arrays[Key.SUM])


def _comes_out(
    replayed_client: ReplayedClient, message: Message, client: int, honest_reply: RecordDict, sent: Floats32
) -> bool:
    """Return whether a replay gives what was sent; an app that fails in it gives something else."""
    try:
        replayed = _sums(replayed_client.sent(message, client, honest_reply))
    except Exception:  # an app of somebody else may refuse any message
        return False
    return replayed is not None and np.array_equal(replayed, sent)


def _with_other_secret(message: Message) -> Message:
    """Return a message that names the other secret in every trial, where it names any."""
    secrets = {
        key: (~np.frombuffer(value, dtype=np.bool_)).tobytes()
        for key, value in _config(message).items()
        if key in (Key.MEMBERSHIP, Key.COINS) and isinstance(value, bytes)
    }
    return _with(message, secrets)


def _with_other_seed(message: Message) -> Message:
    """Return a message that names another seed of the client's noise."""
    return _with(message, {Key.NOISE_SEED: int(str(_config(message)[Key.NOISE_SEED])) ^ 1})


def _config(message: Message) -> ConfigRecord:
    config = message.content[MessageRecordName.CONFIG]
    assert isinstance(config, ConfigRecord)
    return config


def _with(message: Message, changes: Mapping[str, ConfigRecordValues]) -> Message:
    """Return a message with other values in its configuration."""
    config = ConfigRecord({**_config(message), **changes})
    content = RecordDict({**message.content, MessageRecordName.CONFIG: config})
    return Message(content, message.metadata.dst_node_id, message.metadata.message_type)


def _follows_noise(
    replayed_client: ReplayedClient, other_seed: Message, client: int, honest_reply: RecordDict, sent: Floats32
) -> bool:
    """Return whether what was sent follows the noise itself, beside the noised contribution, as if some were removed.

    A rule may draw random numbers by the seed of the noise. With another seed the difference of what is sent is then
    no part of the difference of the noises, unless by chance.
    """
    try:
        replayed = _sums(replayed_client.sent(other_seed, client, honest_reply))
        noised = _sums(honest_reply)
        other_noise = _sums(replayed_client.honest_reply(other_seed, client))
    except Exception:  # an app of somebody else may refuse any message
        return False
    if replayed is None or noised is None or other_noise is None:
        return False
    products = (sent.astype(np.float64) - replayed) * (noised.astype(np.float64) - other_noise)
    return _deviations(products) > _DEVIATIONS


def _is_another_contribution(
    sent: Floats32, noised: Floats32, first: Floats32, second: Floats32, server_round: int
) -> bool:
    """Return whether what was sent does not follow from the noised contribution, though two replays do.

    A rule may draw random numbers or keep something between the rounds, so that no replay is equal to what was sent.
    The difference is then no part of the noised contribution, unless by chance, and it is about as large as the change
    that the rule makes.
    """
    if np.array_equal(first, noised):
        return True
    if server_round == 1 and np.array_equal(first, second):
        return float(np.mean(first != sent)) > _FEW
    contribution = noised.astype(np.float64)
    difference = sent.astype(np.float64) - first
    products = difference * contribution
    share = abs(_total(products)) / _total(contribution**2)
    largest = max(_total((first - contribution) ** 2), _total((first.astype(np.float64) - second) ** 2))
    change = np.sqrt(largest / _total(contribution**2))
    return bool(_deviations(products) > _DEVIATIONS and share > _TIMES_ITS_CHANGE * change)


def _deviations(products: Floats) -> float:
    """Return by how many standard deviations a sum of independent numbers that are symmetric around 0 is from 0."""
    return abs(_total(products)) / math.sqrt(_total(products**2))


def _total(values: Floats) -> float:
    return float(values.sum()) + 1e-300
