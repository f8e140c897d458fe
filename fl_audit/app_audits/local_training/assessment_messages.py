"""The texts of an assessment: the headline, the lines of the report, and the whole assessment as JSON values."""

import math
from dataclasses import asdict
from typing import Any

from fl_audit.adjacency import Adjacency
from fl_audit.app_audits.local_training.assessment import CHECKS, Assessment, unasked
from fl_audit.app_audits.local_training.composition import ComposedPrivacy
from fl_audit.app_audits.local_training.pitfalls import Severity
from fl_audit.app_audits.local_training.recorded_trainings import MeasuredSteps, RecordedTrainings
from fl_audit.app_audits.local_training.training_facts import PrivateStep, RecordedTraining
from fl_audit.array_types import finite
from fl_audit.federation.findings import json_of
from fl_audit.privacy.guarantee_line import GUARANTEE_NAMES, guarantee_line, guarantee_values
from fl_audit.report.guarantee_warnings import weak_claim_warning
from fl_audit.report.template_files import template_texts
from fl_audit.words import capital, plural


def headline(assessment: Assessment) -> str:
    """Return the main result of an assessment as text of one or two sentences."""
    return _texts(assessment)["headline"]


def unseen_of_assessment(assessment: Assessment) -> tuple[str, ...]:
    """Return phrases on what an assessment did not look at: in this training, and in any."""
    return (*assessment.unseen, _texts(assessment)["always-unseen"])


def _texts(assessment: Assessment) -> dict[str, str]:
    def names(severity: Severity) -> str:
        return ", ".join(str(pitfall.pitfall) for pitfall in assessment.pitfalls if pitfall.weight is severity)

    return template_texts(
        "assessment.md",
        verdict=str(assessment.verdict),
        breaking=names(Severity.BREAKS),
        doubtful=names(Severity.DOUBT),
        beside=names(Severity.BESIDE),
        unseen="; ".join(assessment.unseen[:1]),
    )


def report_lines(assessment: Assessment) -> tuple[tuple[str, str], ...]:
    """Return the lines of the report about an assessment, as pairs of subject and text."""
    trainings = assessment.trainings
    lines = list[tuple[str, str]]()
    texts = _line_texts(assessment)
    if trainings.by_client:
        lines += [("Claimed", texts["claimed"]), ("Done", texts["done"]), ("Composed", texts["composed"])]
    if trainings.replays:
        lines.append(("Replayed", texts["replayed"]))
    for pitfall in assessment.pitfalls:
        about = f"{str(pitfall.weight).partition(',')[0].capitalize()}: {pitfall.pitfall}"
        lines.append((about, f"{_sentence(pitfall.observation)} Fix: {pitfall.fix}"))
    if trainings.is_private:
        lines += _search_lines(assessment)
    lines += [("Not looked at", _sentence(reason)) for reason in assessment.unseen]
    return (*lines, ("Not seen", _sentence(_texts(assessment)["always-unseen"])))


def _search_lines(assessment: Assessment) -> list[tuple[str, str]]:
    """Return the lines on how many pitfalls were not found, and on which were not looked for, and why."""
    missing = unasked(assessment.trainings)
    asked_count = len(CHECKS) - len(missing)
    found_count = len({pitfall.pitfall for pitfall in assessment.pitfalls})
    lines = [("Not found", f"{asked_count - found_count} of {asked_count} pitfalls that were looked for.")]
    for why in dict.fromkeys(missing.values()):
        names = ", ".join(name for name, reason in missing.items() if reason == why)
        lines.append(("Not looked for", f"{names}: {why}."))
    return lines


def _sentence(words: str) -> str:
    return f"{capital(words)}."


def training_claim_warning(trainings: RecordedTrainings) -> str | None:
    """Return a warning if the claimed epsilon excludes nothing that a person could object to, else None."""
    if trainings.claimed is None:
        return None
    return weak_claim_warning(trainings.claimed, trainings.used_delta, Adjacency.ADD_REMOVE_RECORD)


def _line_texts(assessment: Assessment) -> dict[str, str]:
    """Return the texts on what was claimed, done, composed and replayed, by name."""
    trainings = assessment.trainings
    composed, users = assessment.composed, assessment.of_users
    return template_texts(
        "assessment_lines.md",
        trainings=trainings,
        reported=trainings.largest_reported_epsilon,
        reported_rounds=_reported_rounds(trainings),
        **_facts_of_engine(trainings),
        **_facts_of_steps(trainings),
        composed=composed,
        line="" if composed is None else _line(composed),
        users=users,
        users_line="" if users is None else _line(users),
        chance_epsilon=_chance_epsilon(assessment),
        replayed_steps=sum(replay.steps for replay in trainings.replays),
        **_facts_of_effects(trainings),
    )


def _reported_rounds(trainings: RecordedTrainings) -> str:
    """Return what rounds the epsilon is of that an accountant reported; empty if only one was played."""
    if trainings.claimed_rounds > 1 and not trainings.fresh_accountant:
        return f" over {plural(trainings.claimed_rounds, 'round')}"
    epsilons = {f"{answer.epsilon:.3g}" for training in trainings.trainings for answer in training.answers}
    return " in each round" if len(trainings.trainings) > 1 and len(epsilons) == 1 else ""


def _facts_of_engine(trainings: RecordedTrainings) -> dict[str, Any]:
    """Return the first engine of Opacus and its numbers; None for each without an engine."""
    engine = next((engine for training in trainings.trainings for engine in training.engines), None)
    if engine is None:
        return dict.fromkeys(("engine", "norms", "requested", "smallest_multiplier"))
    smallest, requested = min(
        (training.multipliers for training in trainings.private_trainings), key=lambda pair: pair[0] - pair[1]
    )
    norms = ", ".join(f"{norm:g}" for norm in dict.fromkeys(engine.norms))
    return {"engine": engine, "norms": norms, "requested": requested, "smallest_multiplier": smallest}


def _facts_of_steps(trainings: RecordedTrainings) -> dict[str, Any]:
    """Return the numbers of the steps that were taken, of their batches and of their noise."""
    private_trainings = trainings.private_trainings
    batches = [
        batch for training in private_trainings for step in training.noised for batch in training.batches_of(step)
    ]
    noised = [
        step
        for training in private_trainings
        for step in training.noised
        if step.noise is not None and step.noise_multiplier > 0
    ]
    count = sum(step.noise.count for step in noised if step.noise is not None)
    measured = trainings.measured
    measured_steps = () if measured is None else measured.steps
    return {
        "steps": sum(len(training.noised) for training in private_trainings),
        "rounds": len({training.round for training in private_trainings}),
        "clients": len(trainings.by_client),
        "sizes": [len(batch.indices) for batch in batches],
        "samplers": " and ".join(sorted({batch.sampler for batch in batches})),
        "noise_values": count,
        "noise_ratio": _noise_ratio(noised, count) if count and measured is None else None,
        "smallest_noise": min(measured_steps, key=lambda step: step.multiplier, default=None),
        "largest_noise": max(measured_steps, key=lambda step: step.multiplier, default=None),
    }


def _noise_ratio(steps: list[PrivateStep], count: int) -> float:
    """Return the scale of the recorded noise, of `count` values, over the scale that the steps state."""
    squares = sum(
        step.noise.squares / (step.gradient_multiplier * step.norm) ** 2 for step in steps if step.noise is not None
    )
    return math.sqrt(squares / count)


def _facts_of_effects(trainings: RecordedTrainings) -> dict[str, Any]:
    """Return the replay and the measured record with the largest effect; None for each that there is not."""
    if not trainings.replays:
        return dict.fromkeys(("replay", "effect"))
    if trainings.measured is not None:
        return {"replay": None, "effect": max(trainings.measured.effects, key=lambda effect: max(effect.over_noise))}
    return {"replay": max(trainings.replays, key=lambda replay: replay.moved / replay.claimed), "effect": None}


def _chance_epsilon(assessment: Assessment) -> float | None:
    """Return the least epsilon that chance leaves possible of measured steps; None if there is none."""
    if assessment.composed is None or assessment.trainings.measured is None:
        return None
    privacy = assessment.trainings.composed_of(is_least=True)
    return None if privacy is None else finite(privacy.epsilon)


def _line(composed: ComposedPrivacy) -> str:
    """Return an epsilon of composed steps in words."""
    if composed.claim is None:
        epsilon = "without bound" if composed.steps else "0"
        return f"epsilon {epsilon} at delta {composed.delta:g}"
    line = guarantee_line(guarantee_values(composed.epsilon, (composed.claim,)))
    return f"at least {line}, since the effect of a record has no known bound" if composed.is_least else line


def assessment_json(assessment: Assessment) -> dict[str, Any]:
    """Return an assessment as a dict of JSON types, for storage; infinite numbers and NaN are None."""
    trainings = assessment.trainings
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
        "claimed": {"epsilon": trainings.claimed, "delta": trainings.used_delta},
        "composed": _composed_json(assessment.composed),
        "users": _composed_json(assessment.of_users),
        "replays": [asdict(replay) for replay in trainings.replays],
        "measured": _measured_json(trainings.measured),
        "trainings": [_training_json(training) for training in trainings.private_trainings],
        "not_looked_at": list(assessment.unseen),
        "not_looked_for": {str(name): why for name, why in unasked(trainings).items()} if trainings.is_private else {},
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
