"""Answers to the exact questions about a run, from the rows of exact checks that the challenger has stored."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fl_audit.errors import InputError
from fl_audit.federation.federation import Federation
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.mechanisms.noises.mechanism_noise import NoiseOrigin
from fl_audit.privacy.independent_epsilon import independent_epsilon
from fl_audit.verdict.exact_questions import (
    MODELS,
    WHOLE,
    ExactAnswer,
    ExactQuestion,
    ExactRow,
    ExactRowKind,
    SecretDraw,
)
from fl_audit.verdict.played_releases import played_releases

if TYPE_CHECKING:
    import pandas as pd

_REPEATED = 0.5  # largest share of draws that may be the same with another secret seed; by chance hardly any is
_LENGTH_ROUNDING = 1e-3
"""Relative amount by which the rounding of 32-bit numbers may enlarge a clipped contribution, as the server allows."""
_NAMES_OF_DRAWS = {
    SecretDraw.NOISE: "noise",
    SecretDraw.SAMPLES: "samples",
    SecretDraw.SHARES: "seeds of the clients' noise",
    SecretDraw.BITS: "noise of the quantile bits",
}
_ONE_SECRET = (
    "in {:,} rounds of trials the server changes {}, and all trials of a batch hold the same data set: whether the "
    "change depends on it is not known; raise trials-per-batch"
)
_OWN_RULE = (
    "in {:,} rounds of trials the server changes {}, by a rule that differs from trial to trial or draws random "
    "numbers, as stochastic rounding does: whether it depends on the secret is not asked"
)
_NOT_A_SUM = (
    "in {:,} rounds of trials the release is not a sum with noise, and does not follow from the sum with the claimed "
    "noise: its noise is not asked about; add the noise by TrialBatchStrategy.noise, and change the noised sums in "
    "post_process_sums"
)
_NOT_REPLAYED = (
    "client {} does not send its contribution plus the claimed noise, and its app cannot be replayed, since it does "
    "not train by fl_audit.clients.app: its noise is not asked about"
)
_RULE_OF_CLIENT = (
    "client {} does not send its contribution plus the claimed noise, but changes them afterwards, by a rule that is "
    "its own, keeps something between rounds or draws random numbers: whether it depends on the secret is not asked"
)
_CHANGED_SHARES = (
    "client {} does not send its contribution plus the claimed noise, but changes them afterwards: the claim counts "
    "the noise of several clients, and a sum of changed contributions is no sum with this noise, so its epsilon is not "
    "known; change the sum on the server, in post_process_sums"
)
_NOISED_SUMS = "the noised sums after the noise"
_MODELS = "the models after the optimizer's step"
_NOT_OPENED = "nothing was recomputed while the run was played, or the challenger's directory was not read"


def exact_answers(run: FinishedRun) -> tuple[ExactAnswer, ...]:
    """Return the answers to all exact questions about a finished run, in the order of their declaration."""
    return run.cached(_answers)


def _answers(run: FinishedRun) -> tuple[ExactAnswer, ...]:
    rows = _rows_of(run.tables.tallies)
    mechanism = run.plan.federation.mechanism
    unbounded = "clients train privately: single gradients are clipped inside of their training"
    server = "the server adds no independent noise whose step could be run again with D and D'"
    is_private = isinstance(mechanism.contribution, PrivateTraining)
    return (
        _sum(rows),
        _not_asked(ExactQuestion.LENGTH, unbounded) if is_private else _length(rows, mechanism.unit),
        _bits(rows) if mechanism.is_adaptive else _not_asked(ExactQuestion.BITS, "the clipping norm is fixed"),
        _start(rows),
        _step(_of(rows, WHOLE), mechanism.noise.origin is NoiseOrigin.SERVER),
        _moved(rows, server),
        _epsilon(run),
        _second(rows),
        _models(_of(rows, MODELS)),
        *_contributions(rows, run.plan.federation),
    )


def _not_asked(question: ExactQuestion, reason: str) -> ExactAnswer:
    return ExactAnswer(question, reason=reason)


_Rows = dict[ExactRowKind, list[ExactRow]]


def _rows_of(tallies: "pd.DataFrame | None") -> _Rows:
    """Return the rows of exact checks in the table of tallies, by kind, in the order of the table."""
    rows_of_kind: _Rows = {kind: [] for kind in ExactRowKind}
    if tallies is not None:
        names = [str(kind) for kind in ExactRowKind]
        table = tallies[tallies["kind"].isin(names)]
        for kind, trial, number, where, value in table.itertuples(index=False):
            rows_of_kind[ExactRowKind(kind)].append(
                ExactRow(ExactRowKind(kind), int(trial), int(number), int(where), value)
            )
    return rows_of_kind


def _worst(values: list[ExactRow], allowed: list[ExactRow]) -> tuple[ExactRow, float]:
    """Return the row that exceeds what is allowed by most, as a ratio, and what is allowed there."""
    limits = np.array([max(row.value, 1e-300) for row in allowed])
    at = int((np.array([row.value for row in values]) / limits).argmax())
    return values[at], allowed[at].value


def _places(values: list[ExactRow]) -> str:
    return "; ".join(f"trial {row.trial} round {row.number}" for row in values)


def _sum(rows: _Rows) -> ExactAnswer:
    values = rows[ExactRowKind.SUM]
    if not values:
        return _not_asked(ExactQuestion.SUM, _NOT_OPENED)
    worst, allowed = _worst(values, rows[ExactRowKind.SUM_ALLOWED])
    subject = "what the server summed" if worst.where < 0 else f"what the server read of client {worst.where}"
    text = (
        f"in trial {worst.trial} round {worst.number}, {subject} is {worst.value:.3g} clipping norms away from "
        f"what was recomputed from the data; rounding explains {allowed:.2g}"
    )
    units = sum(int(row.value) for row in rows[ExactRowKind.UNITS])
    checked = f"{_places(values)} ({units:,} contributions)" if units else _places(values)
    return ExactAnswer(ExactQuestion.SUM, worst.value, allowed, worst.value <= allowed, text, checked)


def _length(rows: _Rows, unit: str) -> ExactAnswer:
    values = rows[ExactRowKind.LENGTH]
    if not values:
        return _not_asked(ExactQuestion.LENGTH, _NOT_OPENED)
    worst = max(values, key=lambda row: row.value)
    allowed = 1 + _LENGTH_ROUNDING
    text = (
        f"the longest contribution, of {unit} {worst.where} in trial {worst.trial} round {worst.number}, is "
        f"{worst.value:.4g} times the clipping norm; rounding explains {allowed:g}"
    )
    return ExactAnswer(ExactQuestion.LENGTH, worst.value, allowed, worst.value <= allowed, text, _places(values))


def _bits(rows: _Rows) -> ExactAnswer:
    values = rows[ExactRowKind.BITS]
    if not values:
        return _not_asked(ExactQuestion.BITS, _NOT_OPENED)
    excess = [row.value - limit.value for row, limit in zip(values, rows[ExactRowKind.BITS_ALLOWED], strict=True)]
    at = int(np.argmax(excess))
    worst = values[at]
    allowed = rows[ExactRowKind.BITS_ALLOWED][at].value
    text = (
        f"in trial {worst.trial} round {worst.number} the sum of the bits is {worst.value:g} away from what was "
        f"recomputed from the data; rounding explains {allowed:g}"
    )
    return ExactAnswer(ExactQuestion.BITS, worst.value, allowed, worst.value <= allowed, text, _places(values))


def _start(rows: _Rows) -> ExactAnswer:
    values = rows[ExactRowKind.START]
    if not values:
        return _not_asked(ExactQuestion.START, _NOT_OPENED)
    worst = max(values, key=lambda row: row.value)
    compared = sum(int(row.value) for row in rows[ExactRowKind.STARTS])
    text = f"the initial model of trial {worst.trial} differs from the public one in {worst.value:,.0f} numbers"
    if worst.value == 0:
        text = "the initial models are the public ones, to the last bit"
    return ExactAnswer(ExactQuestion.START, worst.value, 0.0, worst.value == 0, text, f"{compared:,} initial models")


def _of(rows: _Rows, where: int) -> _Rows:
    """Return the rows that are about one place."""
    return {kind: [row for row in rows_of_kind if row.where == where] for kind, rows_of_kind in rows.items()}


def _step(rows: _Rows, server_adds: bool) -> ExactAnswer:
    if not server_adds and not any(rows[kind] for kind in _CHANGED):
        return _not_asked(ExactQuestion.STEP, "the server adds no noise")
    if not rows[ExactRowKind.STARTS]:
        return _not_asked(ExactQuestion.STEP, _NOT_OPENED)
    if no_sums := _count(rows, ExactRowKind.NOT_A_SUM):
        reason = _NOT_A_SUM.format(no_sums)
        return replace(_not_asked(ExactQuestion.STEP, reason), is_open=True, hides_noise=True)
    if (changed := _changed(ExactQuestion.STEP, rows, _NOISED_SUMS)) is not None:
        return changed
    if unknown := _count(rows, ExactRowKind.UNKNOWN_STEP):
        why = f"in {unknown:,} rounds of trials it does not follow from them, so the tests see the release as it is"
        return _not_asked(ExactQuestion.STEP, why)
    return ExactAnswer(ExactQuestion.STEP, 0.0, 0.0, True, "the release is the sum with the claimed noise", _ALL_ROUNDS)


def _models(rows: _Rows) -> ExactAnswer:
    if (changed := _changed(ExactQuestion.MODELS, rows, _MODELS)) is not None:
        return changed
    return _not_asked(ExactQuestion.MODELS, "the server has no rule that changes them after the step")


def _contributions(rows: _Rows, federation: Federation) -> tuple[ExactAnswer, ...]:
    """Return the answer on what clients send, where they add the noise, unless nothing was recomputed."""
    mechanism = federation.mechanism
    if mechanism.noise.origin not in (NoiseOrigin.CLIENTS, NoiseOrigin.TRAINING) or not rows[ExactRowKind.SUM]:
        return ()
    return (_sent(rows, mechanism.noise.origin is NoiseOrigin.TRAINING or federation.threat_model.known_shares == 0),)


def _sent(rows: _Rows, is_private_alone: bool) -> ExactAnswer:
    """Return the answer on what clients send.

    `is_private_alone`: Whether the claim counts one client's noise, so that it holds for what this client sends.
    """
    question = ExactQuestion.CONTRIBUTIONS
    clients = {kind: [row for row in rows[kind] if row.where >= 0] for kind in _CHANGED}
    locations = _places(rows[ExactRowKind.SUM])
    if secret := clients[ExactRowKind.FOLLOWS_SECRET]:
        text = f"client {secret[0].where} changes its noised contribution in one way with D and another with D'"
        return ExactAnswer(question, float(len(secret)), 0.0, False, text, locations)
    reasons = {ExactRowKind.NOT_A_SUM: _NOT_REPLAYED, ExactRowKind.OWN_RULE: _RULE_OF_CLIENT}
    if not is_private_alone:
        reasons |= {ExactRowKind.POST_PROCESSED: _CHANGED_SHARES}
    for kind, reason in reasons.items():
        if changed := clients[kind]:
            answer = _not_asked(question, reason.format(changed[0].where))
            return replace(answer, is_open=True, hides_noise=True)
    if not _sum(rows).is_kept:
        return _not_asked(question, "a sum is not that of the contributions and the claimed noise")
    text = "checked clients send their contributions plus the claimed noise"
    if processed := clients[ExactRowKind.POST_PROCESSED]:
        text = (
            f"client {processed[0].where} does not send its contribution plus the claimed noise, but changes them "
            "afterwards, by a rule that is the same for D and D', which weakens no guarantee; noise that is changed is "
            "not tested"
        )
    return ExactAnswer(question, 0.0, 0.0, True, text, locations, hides_noise=bool(processed))


_CHANGED = (
    ExactRowKind.POST_PROCESSED,
    ExactRowKind.ONE_SECRET,
    ExactRowKind.FOLLOWS_SECRET,
    ExactRowKind.OWN_RULE,
    ExactRowKind.NOT_A_SUM,
)
_ALL_ROUNDS = "all rounds of all trials"


def _count(rows: _Rows, kind: ExactRowKind) -> int:
    return int(sum(row.value for row in rows[kind]))


def _changed(question: ExactQuestion, rows: _Rows, subject: str) -> ExactAnswer | None:
    """Return the answer about rounds in which a server changes something; None if it changes nothing that is known."""
    if secret := _count(rows, ExactRowKind.FOLLOWS_SECRET):
        text = f"in {secret:,} rounds of trials the server changes {subject} in one way with D and another with D'"
        return ExactAnswer(question, float(secret), 0.0, False, text, _ALL_ROUNDS)
    if of_its_own := _count(rows, ExactRowKind.OWN_RULE):
        return replace(_not_asked(question, _OWN_RULE.format(of_its_own, subject)), is_open=True)
    if _count(rows, ExactRowKind.UNKNOWN_STEP):
        return None
    processed = _count(rows, ExactRowKind.POST_PROCESSED)
    one_secret = _count(rows, ExactRowKind.ONE_SECRET)
    if one_secret and not processed:
        return replace(_not_asked(question, _ONE_SECRET.format(one_secret, subject)), is_open=True)
    if not processed:
        return None
    text = (
        f"in {processed + one_secret:,} rounds of trials the server changes {subject}, by a rule that is the "
        "same for D "
        "and D', which weakens no guarantee; the tests see the noised sums before it"
    )
    return ExactAnswer(question, 0.0, 0.0, True, text, _ALL_ROUNDS)


def _moved(rows: _Rows, server: str) -> ExactAnswer:
    values = rows[ExactRowKind.MOVED]
    if not values:
        return _not_asked(ExactQuestion.MOVED, server)
    worst, allowed = _worst(values, rows[ExactRowKind.MOVED_ALLOWED])
    text = (
        f"in trial {worst.trial} round {worst.number}, D and D' move the release by {worst.value:.3g} clipping norms "
        f"under the same noise; {allowed:.3g} is claimed"
    )
    return ExactAnswer(ExactQuestion.MOVED, worst.value, allowed, worst.value <= allowed, text, _places(values))


def _second(rows: _Rows) -> ExactAnswer:
    values = rows[ExactRowKind.SECOND]
    if not values:
        why = "nothing was drawn from the secret seed, or the server could not begin anew"
        return _not_asked(ExactQuestion.SECOND_SEED, why if rows[ExactRowKind.STARTS] else _NOT_OPENED)
    worst = max(values, key=lambda row: row.value)
    name = _NAMES_OF_DRAWS[SecretDraw(worst.where)]
    text = f"{worst.value:.0%} of the {name} are the same with another secret seed, so that others can draw them again"
    if is_kept := worst.value <= _REPEATED:
        text = "noise and samples are others with another secret seed"
    checked = ", ".join(_NAMES_OF_DRAWS[SecretDraw(row.where)] for row in values)
    if rows[ExactRowKind.MODULES_WENT_ON]:
        checked += "; not generators that stand in a module, since the strategy cannot be imported anew"
    return ExactAnswer(ExactQuestion.SECOND_SEED, worst.value, _REPEATED, is_kept, text, checked)


def _epsilon(run: FinishedRun) -> ExactAnswer:
    guarantee = run.plan.guarantee
    delta = _configured_delta(run)
    if guarantee is None:
        return _not_asked(ExactQuestion.EPSILON, "nothing is claimed")
    claimed = guarantee.epsilon
    if not math.isfinite(claimed):
        return _not_asked(ExactQuestion.EPSILON, "the claimed epsilon is infinite")
    try:
        epsilon = max(
            (independent_epsilon(release, delta) for release in played_releases(run.plan.federation)),
            key=lambda epsilon: epsilon.epsilon,
        )
    except (InputError, ValueError) as why:
        return _not_asked(ExactQuestion.EPSILON, str(why))
    text = f"the mechanism as played has epsilon {epsilon.epsilon:.4g} at delta {delta:g}; {claimed:.4g} is claimed"
    allowed = claimed + epsilon.error
    return ExactAnswer(ExactQuestion.EPSILON, epsilon.epsilon, claimed, epsilon.epsilon <= allowed, text, "all rounds")


def _configured_delta(run: FinishedRun) -> float:
    """Return the delta that was configured, or that of the claim if no configuration is at hand."""
    privacy = run.plan.config.privacy
    guarantee = run.plan.guarantee
    if privacy.private:
        return privacy.delta
    return math.nan if guarantee is None else guarantee.delta
