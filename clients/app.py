"""The Flower ClientApp: data owners, the victim among them, and the insider.

Every message brings the public game, so the same app runs under any engine, and a client derives from it what it holds.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod
from numpy.typing import NDArray

from clients.cohort import announce, trained_together
from clients.data_owner import Task, contribute, contribute_as_victim, contribute_members, train_privately, with_noise
from clients.loss_answers import LossPart, MomentsQuestion, losses_held, own_epsilon_star, tell_moments, tell_range
from clients.time_limit import within_time_limit
from fl_audit.adversaries import averages, identifiability
from fl_audit.adversaries.many_targets import observe_candidates, observe_targets, pushed_up
from fl_audit.arrays import Flags
from fl_audit.errors import InputError
from fl_audit.evidence.star.epsilon_star import StarSettings
from fl_audit.evidence.star.loss_moments import ScoreMoments
from fl_audit.game.canaries import canary_contribution, canary_scores
from fl_audit.game.contributing import Moment
from fl_audit.game.game import Game, load_game
from fl_audit.game.membership import Membership
from fl_audit.game.private_training import OwnDraws, accountant_before
from fl_audit.game.public import PublicGame
from fl_audit.game.randomised import told_by
from fl_audit.game.seen import SeenRound
from fl_audit.learning.memory import ROUNDS_BETWEEN_TRIMS, give_back_freed_memory
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.mechanisms.noise import NoiseScaling
from fl_audit.packing import copy_to_tensor, pack, unpack
from fl_audit.protocol import Key, Query, Record, models_key, unpack_participation


def build_app(mods: list[Mod] | None = None) -> ClientApp:
    """Build the app.

    Parameters
    ----------
    mods
        Flower mods around training, such as faults that a test injects.
    """
    app = ClientApp()
    app.train(mods=[within_time_limit, *(mods or [])])(train)
    app.query(Query.IDENTIFY)(identify)
    app.query(Query.OBSERVE, mods=[within_time_limit])(observe)
    app.query(Query.LOSS_RANGE, mods=[within_time_limit])(answer_loss_range)
    app.query(Query.LOSS_MOMENTS, mods=[within_time_limit])(answer_loss_moments)
    return app


def train(message: Message, context: Context) -> Message:
    """Answer a round: the clipped gradient sums of all worlds of a batch."""
    game, client = _game(message), _partition(context)
    if _round(message) % ROUNDS_BETWEEN_TRIMS == 0:
        give_back_freed_memory()
    if game.public.is_canary(client):
        return _send_canary(message, game, client - game.public.clients)
    task = _task(game, client, message)
    if isinstance(game.public.law.contribution, PrivateTraining):
        return _train_privately(message, context, game, client, task)
    sensitivity = None
    if game.public.plays_membership:
        found = contribute_members(game, client, task, _membership(game, client, message, len(task.models)))
    elif client == game.victim:
        found, sensitivity = contribute_as_victim(game, task, _membership(game, client, message))
    elif task.told is not None:
        found = contribute(game, client, task)
    else:
        found = trained_together(game, message, task.models, task.moment, lambda: contribute(game, client, task))
    total = found.total
    if game.public.ascent > 0 and client == game.insider:
        total = total + pushed_up(game, task.models)
    if game.public.law.clients_add_noise:
        total = with_noise(game, total, *_own_draws(message), task.moment.number)
    reply: dict[str, NDArray[Any]] = {Key.SUM: total.cpu().numpy()}
    if found.within is not None:
        reply[Key.WITHIN] = found.within.cpu().numpy()
    if sensitivity is not None and game.public.law.scaling is NoiseScaling.LOCAL:
        reply[Key.LOCAL_SENSITIVITY] = sensitivity
    return _reply(message, reply)


def read_ahead(calls: Sequence[tuple[Message, Context]]) -> None:
    """Take note of calls that follow in this thread: clients of one round and one world are then trained together."""
    own = [(message, _partition(context)) for message, context in calls if message.metadata.message_type == "train"]
    about = {(_config(one)[Key.GAME], _config(one)[Key.ROUND], _config(one)[Key.BATCH]) for one, _ in own}
    told = {id(_arrays(message)[models_key(0)].data) for message, _ in own}
    announce({one.metadata.message_id: client for one, client in own} if len(about) == len(told) == 1 else {})


def _train_privately(message: Message, context: Context, game: Game, client: int, task: Task) -> Message:
    """Answer a round of private training: the updates of all worlds, and what the client's accountant has counted."""
    seed, worlds = _own_draws(message)
    membership = _membership(game, client, message) if game.targets_of(client) else None
    accountant = _own_accountant(message, context, game, client)
    coins = _config(message).get(Key.COINS)
    canaries = None if coins is None else _coins(message, game.public.canaries)
    found = train_privately(game, client, task, OwnDraws(seed, worlds), membership, accountant, canaries)
    asked = _config(message)
    context.state[Record.OWN_ACCOUNTANT] = ConfigRecord(
        {Key.ROUND: asked[Key.ROUND], Key.BATCH: asked[Key.BATCH], Key.ACCOUNTANT: found.accountant}
    )
    times: dict[str, NDArray[Any]] = {} if found.times is None else {Key.TIMES: found.times}
    return _reply(message, {Key.SUM: found.updates.cpu().numpy(), **times}, {Key.ACCOUNTANT: found.accountant})


def _send_canary(message: Message, game: Game, canary: int) -> Message:
    """Answer a round as a canary client, which holds no data."""
    sent, coins = _arrays(message).get(Key.NORMS), _coins(message, 1)[:, 0]
    norms = None if sent is None else copy_to_tensor(unpack(sent))
    found = canary_contribution(game, canary, _round(message), _worlds(message), coins, norms)
    within: dict[str, NDArray[Any]] = {} if found.within is None else {Key.WITHIN: found.within.numpy()}
    return _reply(message, {Key.SUM: found.total.numpy(), **within})


def _coins(message: Message, canaries: int) -> Flags:
    """Return which of so many canaries are in, (worlds, canaries)."""
    told = _config(message)[Key.COINS]
    assert isinstance(told, bytes)
    return np.frombuffer(told, dtype=np.bool_).reshape(-1, canaries)


def _own_accountant(message: Message, context: Context, game: Game, client: int) -> str | None:
    """Return the state of the client's accountant before a round: its own, where it is of the round before.

    Of two batches of worlds in flight to one node, each call begins with the state from before both, and the one that
    ends last leaves its own: what the other noted is lost, as is that of a call whose process died. What the accountant
    must have counted follows from the schedule, so it is made anew then, and no step is lost.
    """
    asked, kept = _config(message), context.state.config_records.get(Record.OWN_ACCOUNTANT)
    is_next = kept is not None and (kept[Key.BATCH], kept[Key.ROUND]) == (asked[Key.BATCH], _round(message) - 1)
    if kept is not None and is_next:
        return str(kept[Key.ACCOUNTANT])
    return accountant_before(game, client, _round(message))


def identify(message: Message, context: Context) -> Message:
    """Tell which partition this node holds, node ids being random in every run, and get ready to play."""
    _game(message)
    config = ConfigRecord({Key.PARTITION: _partition(context)})
    return Message(RecordDict({Record.CONFIG: config}), reply_to=message)


def observe(message: Message, context: Context) -> Message:
    """Answer as the insider: what a release tells about D against D'.

    Raises
    ------
    InputError
        If this client is no insider.
    """
    game, client = _game(message), _partition(context)
    if client not in game.insiders:
        named = " and ".join(map(str, game.insiders))
        raise InputError(f"client {client} was shown a release, the insider is client {named}")
    seen = SeenRound.of(_round(message), {key: _tensor(game, message, key) for key in _arrays(message)})
    if game.public.canaries > 0:
        return _reply(message, {Key.CANARIES: canary_scores(game, seen, _worlds(message))})
    if game.public.plays_membership:
        told_of_all = (
            observe_candidates(game, seen)
            if game.public.exactly_one
            else observe_targets(game, seen, _told_membership(message, game.public.targets))
        )
        added, signal, noise = told_of_all
        return _reply(message, {Key.LOG_ODDS: added, Key.LOCAL_SENSITIVITY: signal, Key.SCORES: noise})
    if not game.public.law.weighs_exactly:
        return _reply(message, {Key.SCORE: averages.score(game, seen, client)})
    found = identifiability.observe(game, seen)
    told: dict[str, NDArray[Any]] = {Key.LOG_ODDS: found.increment, Key.LOCAL_SENSITIVITY: found.local_sensitivity}
    return _reply(message, told | {Key.SCORES: found.scores, Key.RESIDUALS: found.residuals.as_array()})


def answer_loss_range(message: Message, context: Context) -> Message:
    """Answer a data owner's extreme losses on a release."""
    found = tell_range(_losses(message, context))
    return _reply(message, {Key.COUNT: found.count, Key.LOW: found.low, Key.HIGH: found.high})


def answer_loss_moments(message: Message, context: Context) -> Message:
    """Answer the moments of a data owner's scores on a release, and keep Epsilon* of its own shard.

    The client reads that in its own state; the server is told it only where the configuration says so. With several
    batches of worlds in flight the state keeps whichever was answered last: a client of one world has one.
    """
    asked, question = _config(message), _question(message)
    found = tell_moments(_losses(message, context), question)
    star = own_epsilon_star(found, question)
    context.state[Record.OWN_EPSILON_STAR] = ConfigRecord(
        {Key.ROUND: asked[Key.ROUND], Key.BATCH: asked[Key.BATCH], Key.EPSILON_STAR: star.tolist()}
    )
    reply: dict[str, NDArray[Any]] = {Key.COUNT: found.count, Key.MEAN: found.mean, Key.SQUARES: found.squares}
    if asked[Key.REPORT]:
        reply[Key.EPSILON_STAR] = star
    return _reply(message, reply)


def _losses(message: Message, context: Context) -> list[LossPart]:
    game, client = _game(message), _partition(context)
    membership = _membership(game, client, message) if game.targets_of(client) else None
    return losses_held(game, client, _tensor(game, message, models_key(0)), membership)


def _question(message: Message) -> MomentsQuestion:
    arrays = _arrays(message)
    population = (Key.POPULATION_COUNT, Key.POPULATION_MEAN, Key.POPULATION_SQUARES)
    return MomentsQuestion(
        unpack(arrays[Key.LOW]),
        unpack(arrays[Key.HIGH]),
        ScoreMoments(*(unpack(arrays[key]) for key in population)),
        StarSettings(*(float(str(_config(message)[key])) for key in (Key.DELTA, Key.CUT))),
    )


def _game(message: Message) -> Game:
    game = load_game(PublicGame.from_json(str(_config(message)[Key.GAME])))
    torch.set_num_threads(game.public.threads)
    return game


def _membership(game: Game, client: int, message: Message, worlds: int = 0) -> Membership:
    """Return which of the client's own targets are in; of a client without targets an empty one of so many worlds."""
    if not game.targets_of(client):
        return Membership(np.empty((worlds, 0), dtype=np.bool_))
    return _told_membership(message, len(game.targets_of(client)))


def _told_membership(message: Message, targets: int) -> Membership:
    """Return which of so many targets are in, as a message tells."""
    secret = _config(message)[Key.MEMBERSHIP]
    assert isinstance(secret, bytes)
    return Membership.unpack(secret, targets)


def _task(game: Game, client: int, message: Message) -> Task:
    """Return what a client is asked for in a round."""
    models, norms = _models(game, message), _arrays(message).get(Key.NORMS)
    moment = Moment(_round(message), None if norms is None else copy_to_tensor(unpack(norms)).to(game.public.device))
    told = None if game.public.randomiser is None else told_by(game, client, OwnDraws(*_own_draws(message)))
    packed = _config(message).get(Key.PARTICIPATION)
    if packed is None:
        return Task(models, moment, None, told)
    assert isinstance(packed, bytes)
    return Task(models, moment, unpack_participation(packed, len(models), len(game.shards[client])), told)


def _own_draws(message: Message) -> tuple[int, tuple[int, ...]]:
    """Return the secret seed of what a client draws, and the numbers of the worlds that a message is about."""
    return int(str(_config(message)[Key.NOISE_SEED])), _worlds(message)


def _worlds(message: Message) -> tuple[int, ...]:
    worlds = _config(message)[Key.WORLDS]
    assert isinstance(worlds, list)
    return tuple(int(world) for world in worlds)


def _round(message: Message) -> int:
    return int(str(_config(message)[Key.ROUND]))


def _partition(context: Context) -> int:
    return int(context.node_config["partition-id"])


def _config(message: Message) -> ConfigRecord:
    # `content.config_records` makes a dictionary anew whenever it is asked, which adds up over the calls of a round.
    found = message.content[Record.CONFIG]
    assert isinstance(found, ConfigRecord)
    return found


def _arrays(message: Message) -> ArrayRecord:
    found = message.content[Record.ARRAYS]
    assert isinstance(found, ArrayRecord)
    return found


def _tensor(game: Game, message: Message, key: str) -> torch.Tensor:
    return copy_to_tensor(unpack(_arrays(message)[key])).to(game.public.device)


def _models(game: Game, message: Message) -> torch.Tensor:
    """Return a round's models, which nobody changes; clients that are called in one process are sent the same bytes.

    Only a single world's model is kept from one call to the next: of many, the memory is worth more than the copy.
    """
    sent = _arrays(message)[models_key(0)].data
    if _LAST.models is not None and _LAST.sent is sent:
        return _LAST.models
    models = _tensor(game, message, models_key(0))
    _LAST.sent, _LAST.models = (sent, models) if len(models) == 1 else (None, None)
    return models


class _LastModels(threading.local):
    """The models of the last message in this thread, and the bytes that they were read from."""

    sent: bytes | None = None
    models: torch.Tensor | None = None


_LAST = _LastModels()


def _reply(message: Message, arrays: Mapping[str, NDArray[Any]], more: Mapping[str, str] | None = None) -> Message:
    asked = _config(message)
    content = RecordDict(
        {
            Record.ARRAYS: ArrayRecord({key: Array(*pack(value)) for key, value in arrays.items()}),
            Record.CONFIG: ConfigRecord({Key.ROUND: asked[Key.ROUND], Key.BATCH: asked[Key.BATCH], **(more or {})}),
        }
    )
    return Message(content, reply_to=message)


app = build_app()
