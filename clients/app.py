"""The Flower ClientApp: data owners, the victim among them, and the insider.

Every message brings the public game, so the same app runs under any engine, and a client derives from it what it holds.
"""

import faulthandler
import sys

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod

from fl_audit.arrays import Floats
from fl_audit.audits.canaries.canaries import canary_contribution, canary_records, canary_scores
from fl_audit.audits.identifiability import identifiability
from fl_audit.audits.membership.insider import observe_targets, pushed_up
from fl_audit.clients.asked import Asked, trained_together
from fl_audit.clients.asked import read_ahead as read_ahead
from fl_audit.clients.data_owner import contribute, contribute_as_victim, contribute_members, with_noise
from fl_audit.errors import InputError
from fl_audit.federation.contributing import private_steps, trained_privately
from fl_audit.federation.membership import Membership
from fl_audit.federation.seen import SeenRound
from fl_audit.learning.memory import ROUNDS_BETWEEN_TRIMS, give_back_freed_memory
from fl_audit.learning.private_training import CanaryRecords
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.mechanisms.noise import NoiseScaling
from fl_audit.protocol import Key, Query, Record
from fl_audit.released_model import loss_moments as moments


def build_app(mods: list[Mod] | None = None) -> ClientApp:
    """Build the app; mods stand around training, such as faults that a test injects."""
    app = ClientApp()
    app.train(mods=[_within_time_limit, *(mods or [])])(train)
    app.query(Query.IDENTIFY)(identify)
    app.query(Query.OBSERVE, mods=[_within_time_limit])(observe)
    app.query(Query.LOSS_RANGE, mods=[_within_time_limit])(answer_loss_range)
    app.query(Query.LOSS_MOMENTS, mods=[_within_time_limit])(answer_loss_moments)
    return app


def train(message: Message, context: Context) -> Message:
    """Answer a round: the clipped gradient sums of all worlds of a batch."""
    asked = Asked(message, context)
    game, client, law = asked.game, asked.client, asked.game.public.law
    if asked.round % ROUNDS_BETWEEN_TRIMS == 0:
        give_back_freed_memory()
    if game.public.is_canary(client):
        return _send_canary(asked, client - game.public.clients)
    if isinstance(law.contribution, PrivateTraining):
        return _train_privately(asked)
    task, membership, sensitivity = asked.task, asked.own_membership, None
    if game.public.plays_membership:
        none = Membership(np.empty((len(task.models), 0), dtype=np.bool_))
        found = contribute_members(game, client, task, none if membership is None else membership)
    elif client == game.victim:
        assert membership is not None, "the victim holds a target"
        found, sensitivity = contribute_as_victim(game, task, membership)
    elif task.told is not None:
        found = contribute(game, client, task)
    else:
        found = trained_together(asked, task, lambda: contribute(game, client, task))
    total = found.total
    if game.public.ascent > 0 and client == game.insider:
        total = total + pushed_up(game, task.models)
    if law.clients_add_noise:
        total = with_noise(game, total, asked.draws, asked.round)
    within = None if found.within is None else found.within.cpu().numpy()
    told = sensitivity if law.scaling is NoiseScaling.LOCAL else None
    return asked.reply({Key.SUM: total.cpu().numpy(), Key.WITHIN: within, Key.LOCAL_SENSITIVITY: told})


def _train_privately(asked: Asked) -> Message:
    """Answer a round of private training: the updates of all worlds, and what the client's accountant has counted."""
    game, client, draws, canaries = asked.game, asked.client, asked.draws, None
    # The victim trains on x where it is in; others have no target.
    is_in = None if asked.own_membership is None else asked.own_membership.bits
    if Key.COINS in asked.config:
        records, coins = canary_records(game, asked.round, draws.worlds), asked.coins(game.public.canaries)
        canaries = CanaryRecords(records, coins, draws.of_round(asked.round, for_canaries=True))
    before = _own_accountant(asked)
    found = trained_privately(game, client, asked.models, asked.round, draws, is_in, before, canaries)
    counted: dict[str, str] = {Key.ACCOUNTANT: found.accountant}
    asked.context.state[Record.OWN_ACCOUNTANT] = ConfigRecord(asked.about | counted)
    return asked.reply({Key.SUM: found.updates.cpu().numpy(), Key.TIMES: found.times}, counted)


def _send_canary(asked: Asked, canary: int) -> Message:
    """Answer a round as a canary client, which holds no data."""
    coins = asked.coins(1)[:, 0]
    found = canary_contribution(asked.game, canary, asked.round, asked.worlds, coins, asked.norms)
    within = None if found.within is None else found.within.numpy()
    return asked.reply({Key.SUM: found.total.numpy(), Key.WITHIN: within})


def _own_accountant(asked: Asked) -> str | None:
    """Return the state of the client's accountant before a round: its own, where it is of the round before.

    Of two batches of worlds in flight to one node, each call begins with the state from before both, and the one that
    ends last leaves its own: what the other noted is lost, as is that of a call whose process died. What the accountant
    must have counted follows from the schedule, so it is made anew then, and no step is lost.
    """
    kept = asked.context.state.config_records.get(Record.OWN_ACCOUNTANT)
    if kept is not None and (kept[Key.BATCH], kept[Key.ROUND]) == (asked.config[Key.BATCH], asked.round - 1):
        return str(kept[Key.ACCOUNTANT])
    if asked.round == 1:
        return None
    records = len(asked.game.shards[asked.client])
    return private_steps(asked.game.public.law).accountant_after(asked.round - 1, records)


def identify(message: Message, context: Context) -> Message:
    """Tell which partition this node holds, node ids being random in every run, and get ready to play."""
    asked = Asked(message, context)
    _ready = asked.game  # loaded before the first round
    config = ConfigRecord({Key.PARTITION: asked.client})
    return Message(RecordDict({Record.CONFIG: config}), reply_to=message)


def observe(message: Message, context: Context) -> Message:
    """Answer as the insider: what a release tells about D against D'; a client that is none raises an `InputError`."""
    asked = Asked(message, context)
    game, client = asked.game, asked.client
    if client not in game.insiders:
        named = " and ".join(map(str, game.insiders))
        raise InputError(f"client {client} was shown a release, the insider is client {named}")
    seen = SeenRound.of(asked.round, {key: asked.tensor(key) for key in asked.arrays})
    if game.public.canaries > 0:
        return asked.reply({Key.CANARIES: canary_scores(game, seen, asked.worlds)})
    if game.public.plays_membership:
        who = None if game.public.exactly_one else asked.membership(game.public.targets)
        added, signal, noise = observe_targets(game, seen, who)
        return asked.reply({Key.LOG_ODDS: added, Key.LOCAL_SENSITIVITY: signal, Key.SCORES: noise})
    if not game.public.law.weighs_exactly:
        return asked.reply({Key.SCORE: identifiability.score(game, seen, client)})
    found = identifiability.observe(game, seen)
    weighed: dict[str, Floats] = {Key.LOG_ODDS: found.increment, Key.LOCAL_SENSITIVITY: found.local_sensitivity}
    return asked.reply({**weighed, Key.SCORES: found.scores, Key.RESIDUALS: found.residuals.as_array()})


# What a data owner tells of its losses on a release are summaries of its shard in each world, never a loss. The
# victim's record set follows its bit in each world, as in training. Its answers are sums over the whole shard and go to
# the server alone, which has the victim's contributions of that world anyway; no other client sees them. Only the range
# of all members and the population goes back to everybody, where no public range is configured.


def answer_loss_range(message: Message, context: Context) -> Message:
    """Answer a data owner's extreme losses on a release."""
    asked = Asked(message, context)
    found = moments.joint_range([moments.range_of(losses).where(held) for losses, held in asked.losses()])
    return asked.reply({Key.COUNT: found.count, Key.LOW: found.low, Key.HIGH: found.high})


def answer_loss_moments(message: Message, context: Context) -> Message:
    """Answer the moments of a data owner's scores on a release, and keep Epsilon* of its own shard.

    It is that against the population, NaN where the shard holds fewer than two records. The client reads it in its own
    state; the server is told it only where the configuration says so. With several batches of worlds in flight the
    state keeps whichever was answered last: a client of one world has one.
    """
    asked = Asked(message, context)
    low, high = asked.array(Key.LOW), asked.array(Key.HIGH)
    parts = [moments.moments_of(losses, low, high).where(held) for losses, held in asked.losses()]
    found, delta, cut = moments.joint_moments(parts), asked.config[Key.DELTA], asked.config[Key.CUT]
    named = (Key.POPULATION_COUNT, Key.POPULATION_MEAN, Key.POPULATION_SQUARES)
    population = moments.ScoreMoments(*map(asked.array, named))
    star = moments.epsilon_star_of_moments(found, population, float(str(delta)), float(str(cut)))
    context.state[Record.OWN_EPSILON_STAR] = ConfigRecord(asked.about | {Key.EPSILON_STAR: star.tolist()})
    told = star if asked.config[Key.REPORT] else None
    summary: dict[str, Floats] = {Key.COUNT: found.count, Key.MEAN: found.mean, Key.SQUARES: found.squares}
    return asked.reply({**summary, Key.EPSILON_STAR: told})


def _within_time_limit(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Flower mod: end this actor's process if the call takes longer than the message allows, on whatever machine.

    A hanging client keeps the whole simulation waiting, even after its server gave up. The timer runs in C, without
    Python's lock, so it also ends a call that holds that lock. In process (local engine) the engine keeps the time: a
    Ray actor alone may be ended without harm to anybody else.
    """
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized() or ray.get_runtime_context().get_actor_id() is None:
        return call_next(message, context)
    seconds = message.content.config_records[Record.CONFIG][Key.TIME_LIMIT]
    faulthandler.dump_traceback_later(float(str(seconds)), exit=True)
    try:
        return call_next(message, context)
    finally:
        faulthandler.cancel_dump_traceback_later()


app = build_app()
