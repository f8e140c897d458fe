"""The texts of an assessment: the headline, the lines of the report, and the whole assessment as JSON values."""

import math
from dataclasses import asdict
from typing import Any, assert_never

from fl_audit.adjacency import Adjacency
from fl_audit.app_audits.local_training.assessment import CHECKS, Assessment, unasked
from fl_audit.app_audits.local_training.composition import ComposedPrivacy
from fl_audit.app_audits.local_training.pitfalls import Severity
from fl_audit.app_audits.local_training.recorded_trainings import MeasuredSteps, RecordedTrainings
from fl_audit.app_audits.local_training.training_facts import RecordedTraining, ReportedEpsilon
from fl_audit.array_types import finite
from fl_audit.federation.findings import json_of
from fl_audit.privacy.guarantee_line import GUARANTEE_NAMES, guarantee_line, guarantee_values
from fl_audit.report.guarantee_warnings import weak_claim_warning
from fl_audit.verdict.verdict import Verdict
from fl_audit.words import capital, plural

ALWAYS_UNSEEN = (
    "other configurations and data than those that were run; weights that were trained elsewhere; what the data were "
    "chosen and preprocessed by before the training began; side channels of time and memory"
)


def headline(assessment: Assessment) -> str:
    """Return the main result of an assessment as text of one or two sentences."""
    names = [str(pitfall.pitfall) for pitfall in assessment.pitfalls if pitfall.weight is Severity.BREAKS]
    beside = [str(pitfall.pitfall) for pitfall in assessment.pitfalls if pitfall.weight is Severity.BESIDE]
    doubts = [str(pitfall.pitfall) for pitfall in assessment.pitfalls if pitfall.weight is Severity.DOUBT]
    suffix = f" Beside the model: {', '.join(beside)}." if beside else ""
    match assessment.verdict:
        case Verdict.VIOLATED:
            return f"Violated: the private training breaks its claim by {', '.join(names)}.{suffix}"
        case Verdict.INCONCLUSIVE:
            why = ", ".join(doubts) or "; ".join(assessment.unseen[:1]) or "too little was seen"
            return f"Inconclusive: nothing that ran breaks the claim of the private training. In doubt: {why}.{suffix}"
        case Verdict.CONSISTENT:
            return f"Consistent: the private training that ran is the one that is claimed.{suffix}"
        case Verdict.NOT_AUDITED | Verdict.NO_GUARANTEE:
            why = "; ".join(assessment.unseen[:1])
            return (
                f"Not audited: no engine or optimizer of Opacus was seen at work.{f' {_sentence(why)}' if why else ''}"
            )
        case _:
            assert_never(assessment.verdict)


def report_lines(assessment: Assessment) -> tuple[tuple[str, str], ...]:
    """Return the lines of the report about an assessment, as pairs of subject and text."""
    evidence, lines = assessment.evidence, list[tuple[str, str]]()
    if evidence.by_client:
        lines += [("Claimed", _claimed_words(evidence)), ("Done", _done_words(evidence))]
        lines += [("Composed", _composed_words(assessment))]
    if evidence.replays:
        lines.append(("Replayed", _replayed_words(evidence)))
    for pitfall in assessment.pitfalls:
        about = f"{str(pitfall.weight).partition(',')[0].capitalize()}: {pitfall.pitfall}"
        lines.append((about, f"{_sentence(pitfall.observation)} Fix: {pitfall.fix}"))
    pitfalls = {pitfall.pitfall for pitfall in assessment.pitfalls}
    if evidence.is_private:
        missing = unasked(evidence)
        asked_count = len(CHECKS) - len(missing)
        lines.append(("Not found", f"{asked_count - len(pitfalls)} of {asked_count} pitfalls that were looked for."))
        lines += [
            (
                "Not looked for",
                f"{', '.join(name for name, other_reason in missing.items() if other_reason == why)}: {why}.",
            )
            for why in dict.fromkeys(missing.values())
        ]
    lines += [("Not looked at", _sentence(reason)) for reason in assessment.unseen]
    return (*lines, ("Not seen", _sentence(ALWAYS_UNSEEN)))


def _sentence(words: str) -> str:
    return f"{capital(words)}."


def _claimed_words(trainings: RecordedTrainings) -> str:
    engine = next((engine for training in trainings.trainings for engine in training.engines), None)
    phrases = list[str]()
    if engine is not None:
        norms = ", ".join(f"{norm:g}" for norm in dict.fromkeys(engine.norms))
        phrases.append(f"noise multiplier {_multipliers_words(trainings)}, {engine.clipping} clipping to norm {norms}")
        phrases.append(f"sampling rate {engine.rate:.4g}, expected batch {engine.expected_batch}")
    if trainings.claimed is None:
        phrases.append("no epsilon was named")
    elif trainings.epsilon is not None:
        phrases.append(f"epsilon {trainings.epsilon:.3g} at delta {trainings.used_delta:g} over all rounds")
    elif trainings.largest_reported_epsilon is None:
        phrases.append(
            f"epsilon {trainings.claimed:.3g} at delta {trainings.used_delta:g}, which the engine was asked for"
        )
    else:
        phrases.append(_reported_words(trainings, trainings.largest_reported_epsilon))
    return f"{'; '.join(phrases)}."


def training_claim_warning(trainings: RecordedTrainings) -> str | None:
    """Return a warning if the claimed epsilon excludes nothing that a person could object to, else None."""
    if trainings.claimed is None:
        return None
    return weak_claim_warning(trainings.claimed, trainings.used_delta, Adjacency.ADD_REMOVE_RECORD)


def _reported_words(trainings: RecordedTrainings, reported: ReportedEpsilon) -> str:
    """Return the epsilon that an accountant reported, with the accountant, its steps and the rounds that it is for."""
    epsilons = {f"{answer.epsilon:.3g}" for training in trainings.trainings for answer in training.answers}
    is_of_all = trainings.claimed_rounds > 1 and not trainings.fresh_accountant
    rounds = f" over {plural(trainings.claimed_rounds, 'round')}" if is_of_all else ""
    if not rounds and len(trainings.trainings) > 1 and len(epsilons) == 1:
        rounds = " in each round"
    by = f" by {reported.accountant}, which counted {plural(reported.steps, 'step')}" if reported.accountant else ""
    return f"epsilon {reported.epsilon:.3g}{rounds} at delta {reported.delta:g}{by}"


def _multipliers_words(trainings: RecordedTrainings) -> str:
    """Return the noise multiplier that `make_private` was given, and the smallest of the steps if that is smaller."""
    smallest, requested = min(
        (training.multipliers for training in trainings.private_trainings), key=lambda pair: pair[0] - pair[1]
    )
    if smallest >= requested * (1 - 1e-6):
        return f"{requested:.4g}"
    return f"{requested:.4g} in make_private, down to {smallest:.4g} in the steps"


def _done_words(evidence: RecordedTrainings) -> str:
    trainings = evidence.private_trainings
    steps = sum(len(training.noised) for training in trainings)
    fed = [batch for training in trainings for step in training.noised for batch in training.batches_of(step)]
    sizes = [len(batch.indices) for batch in fed]
    clients, rounds = len(evidence.by_client), len({training.round for training in trainings})
    text = f"{plural(steps, 'step')} in {plural(rounds, 'round')} of {plural(clients, 'client')}"
    if sizes:
        samplers = " and ".join(sorted({batch.sampler for batch in fed}))
        text += f", on batches of {min(sizes)} to {max(sizes)} records by {samplers}"
    noise = [
        step
        for training in trainings
        for step in training.noised
        if step.noise is not None and step.noise_multiplier > 0
    ]
    count = sum(step.noise.count for step in noise if step.noise is not None)
    if evidence.has_dependent_noise:
        text += "; the size of the noise along the effect of a record is not known"
    elif count and evidence.measured is not None:
        text += f"; {_measured_noise_words(evidence.measured)}"
    elif count:
        squares = sum(
            step.noise.squares / (step.gradient_multiplier * step.norm) ** 2 for step in noise if step.noise is not None
        )
        ratio = math.sqrt(squares / count)
        text += f"; noise of {ratio:.3f} times the scale that the steps state, over {count:,} recorded values"
    return f"{text}."


def _measured_noise_words(measured: MeasuredSteps) -> str:
    """Return the noise of measured steps in units of the effect of a record, with the largest that chance allows."""
    smallest_step = min(measured.steps, key=lambda step: step.multiplier)
    largest_step = max(measured.steps, key=lambda step: step.multiplier)
    numbers = f"{smallest_step.multiplier:.3g}"
    if largest_step.multiplier > smallest_step.multiplier:
        numbers += f" to {largest_step.multiplier:.3g}"
    return (
        f"measured noise of {numbers} times the effect of a record (for the smallest, chance leaves up to "
        f"{smallest_step.largest_multiplier:.3g} possible)"
    )


def _composed_words(assessment: Assessment) -> str:
    composed = assessment.composed
    if composed is None:
        is_unknown = assessment.evidence.has_dependent_noise
        return "epsilon is not known." if is_unknown else "no step with noise was taken."
    text = f"over {plural(composed.rounds, 'round')}: {_line(composed)}"
    privacy = assessment.evidence.composed_of(is_least=True)
    if assessment.evidence.measured is not None and privacy is not None and math.isfinite(privacy.epsilon):
        text += f"; it is measured, and by chance it may be as little as {privacy.epsilon:.4g}"
    if assessment.of_users is not None:
        users = assessment.of_users
        text += f". For users with up to {users.records_per_user} records: {_line(users)}"
    return f"{text}."


def _line(composed: ComposedPrivacy) -> str:
    if composed.claim is None:
        epsilon = "without bound" if composed.steps else "0"
        return f"epsilon {epsilon} at delta {composed.delta:g}"
    line = guarantee_line(guarantee_values(composed.epsilon, (composed.claim,)))
    return f"at least {line}, since the effect of a record has no known bound" if composed.is_least else line


def _replayed_words(trainings: RecordedTrainings) -> str:
    if trainings.measured is not None:
        return _measured_effect_words(trainings.measured)
    effect = max(trainings.replays, key=lambda replay: replay.moved / replay.claimed)
    compared = sum(replay.steps for replay in trainings.replays)
    verb = "replaced" if effect.is_replaced else "left out"
    text = f"{plural(compared, 'step')} again with a record {verb}: a sum moved by up to {effect.moved:.4g} times "
    return f"{text}the clipping norm, and {effect.claimed:g} is claimed."


def _measured_effect_words(measured: MeasuredSteps) -> str:
    effect = max(measured.effects, key=lambda effect: max(effect.over_noise))
    against = (
        "the same record without an effect" if effect.has_absence else "other values of it (half of the difference)"
    )
    over_noise = "" if measured.has_dependent_noise else f", {max(effect.over_noise):.3g} times the noise"
    return (
        f"{plural(effect.compared, 'step')} again with other values of record {effect.index}, which moved "
        f"{effect.taking} of them by up to {effect.length:.4g}{over_noise}, against {against}; values 100 times as "
        f"large moved them {effect.growth:.3g} times as far."
    )


def assessment_json(assessment: Assessment) -> dict[str, Any]:
    """Return an assessment as a dict of JSON types, for storage; infinite numbers and NaN are None."""
    evidence = assessment.evidence
    values = {
        "name": assessment.name,
        "verdict": str(assessment.verdict),
        "headline": headline(assessment),
        "pitfalls": [
            {
                "name": str(pitfall.pitfall),
                "weight": pitfall.weight.name.lower(),
                "seen": pitfall.observation,
                "fix": pitfall.fix,
            }
            for pitfall in assessment.pitfalls
        ],
        "claimed": {"epsilon": evidence.claimed, "delta": evidence.used_delta},
        "composed": _composed_json(assessment.composed),
        "users": _composed_json(assessment.of_users),
        "replays": [asdict(replay) for replay in evidence.replays],
        "measured": _measured_json(evidence.measured),
        "trainings": [_training_json(training) for training in evidence.private_trainings],
        "not_looked_at": list(assessment.unseen),
        "not_looked_for": {str(name): why for name, why in unasked(evidence).items()} if evidence.is_private else {},
    }
    return {name: json_of(value) for name, value in values.items()}


def _measured_json(measured: MeasuredSteps | None) -> dict[str, Any] | None:
    """Return what was measured of steps without Opacus; None where Opacus takes the steps."""
    if measured is None:
        return None
    return {
        "steps": [
            {
                "step": step.number + 1,
                "noise_multiplier": None if step.dependent_tensors else finite(step.multiplier),
                "largest_noise_multiplier": None if step.dependent_tensors else finite(step.largest_multiplier),
                "tensors_without_noise": [tensor + 1 for tensor in step.bare_tensors],
                "tensors_with_dependent_noise": [tensor + 1 for tensor in step.dependent_tensors],
            }
            for step in measured.steps
        ],
        "effects": [asdict(effect) for effect in measured.effects],
    }


def _composed_json(composed: ComposedPrivacy | None) -> dict[str, Any] | None:
    if composed is None:
        return None
    steps = [
        {"noise_multiplier": noise, "sampling_rate": rate, "steps": count} for noise, rate, count in composed.steps
    ]
    line = dict.fromkeys(GUARANTEE_NAMES) | {"epsilon": finite(composed.epsilon), "delta": composed.delta}
    if composed.claim is not None:
        line = guarantee_values(composed.epsilon, (composed.claim,))
    details = {"rounds": composed.rounds, "steps": steps, "records_per_user": composed.records_per_user}
    return line | details | {"is_least": composed.is_least}


def _training_json(training: RecordedTraining) -> dict[str, Any]:
    return {
        "client": training.client,
        "round": training.round,
        "engines": [asdict(engine) for engine in training.engines],
        "steps": len(training.noised),
        "counted": training.counted,
        "batch_sizes": [len(batch.indices) for batch in training.batches],
        "answers": [asdict(answer) for answer in training.answers],
        "history": [list(entry) for entry in training.history],
        "numbers": dict(training.left.numbers),
        "evaluation": dict(training.left.evaluation),
    }
