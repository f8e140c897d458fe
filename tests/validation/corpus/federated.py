"""Cases of the catalogue of faulty mechanisms: Flower strategies with small clients, played in this process."""

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import numpy as np

from fl_audit.app_audits.black_box.audited_system import AuditedSystem
from fl_audit.app_audits.black_box.black_box_trial import BlackBoxTrial
from fl_audit.app_audits.black_box.recorder import evidence_names
from fl_audit.app_audits.black_box.scenarios import BY_NAME
from fl_audit.app_audits.black_box.trial_models import template
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.transcript import Transcript
from fl_audit.app_audits.console_output import no_news_from_flower
from fl_audit.generator_states import seed_generators, spared_generators
from tests.validation.corpus import truth
from tests.validation.corpus.case import Case, Claim, Floats, Layout
from tests.validation.corpus.truth import NONE, gaussian
from tests.validation.faulty_mechanisms import honest_twins
from tests.validation.faulty_mechanisms.catalogue import FAULTY_MECHANISMS
from tests.validation.faulty_mechanisms.honest_twins import DELTA, FaultyMechanism, HonestMechanism

FAMILY = "federated"
OWN = "own share of "  # how names of tensors begin that hold what an insider knows of the noise
_PROBED = 4  # trials of either side that tell which numbers a mechanism shows beside the model
_SCENARIOS = {
    "replaced-as-removed": "opposite",
    "bare-scalar": "parameter without axes",
    "unclipped-scalar": "parameter without axes",
    "half-precision": "removed, around a median",
    "low-bits": "removed, around a median",
    "weighted-by-examples": "many examples",
    "clipped-layer-by-layer": "huge in every tensor",
    "clipped-after-averaging": "huge in every tensor",
    "clipped-batch": "huge in every tensor",
    "divided-by-true-size": "removed among opposite ones",
    "missing-reply-averaged-away": "missing reply",
    "crash-on-zero": "zero",
    "noised-for-the-next-norm": "all zero",
    "bare-quantile-bit": "huge",
    "examples-in-metrics": "nothing",
    "loss-in-metrics": "metrics",
    "message-size": "missing reply",
    "fixed-batches": "removed among opposite ones",
    "wrong-sampling-rate": "huge in every tensor",
    "uncomposed-local-privacy": "opposite",
    "private-median": "removed, around a median, many",
    "private-trimmed-mean": "removed, around a median, many",
    "private-krum": "removed, others spread, many",
    "outliers-left-out": "removed, around a median, many",
    "running-means-unclipped": "running statistics",
    "counters-passed-on": "parameter of whole numbers",
    "same-noise-every-round": "alternating",
    "noise-by-replies": "missing reply, large model",
    "sparse-noise": "missing reply, large model",
}
"""Scenarios of the mechanisms that are not played on `removed`: each shows most of what is wrong."""
_MU = {
    "wrong-denominator": 2.0,
    "replaced-as-removed": 2.0,
    "clipped-layer-by-layer": 2**0.5,
    "fixed-batches": 1.0,
    "epsilon-reset-every-round": 2.0,
    "uncomposed-local-privacy": 2.0,
    "off-by-one": 2**0.5,
    # The noise of round i has deviation 2 * 0.7**i over the sensitivity, i from 0 to 3.
    "decaying-noise": sum(1 / (2 * 0.7**i) ** 2 for i in range(4)) ** 0.5,
}
"""Mechanisms as one Gaussian release: the number of standard deviations by which it really moves."""
_SHOWN = (
    "bare-bias",
    "bare-scalar",
    "unclipped-scalar",
    "same-noise-every-round",
    "same-noise-every-client",
    "predictable-noise",
    "crash-on-zero",
    "bare-quantile-bit",
    "examples-in-metrics",
    "loss-in-metrics",
    "norm-in-metrics",
    "running-statistics",
    "message-size",
    "running-means-unclipped",
    "counters-passed-on",
    "sparse-noise",
)
"""Mechanisms that release something without noise, or with a sensitivity that nothing bounds."""
_RATE = 2 * honest_twins.SAMPLING_RATE
_ROUNDS = honest_twins.POISSON_ROUNDS
_HONEST_MU = {honest_case.name: honest_case.claim.mu for honest_case in honest_twins.HONEST} | {"local privacy": 1.0}


def names() -> list[str]:
    """Return the names of all cases, each honest one once."""
    faulty = [f"{FAMILY}/{mechanism.name}" for mechanism in FAULTY_MECHANISMS]
    return [*faulty, *dict.fromkeys(twin_of(mechanism) for mechanism in FAULTY_MECHANISMS)]


def scenario_of(faulty: FaultyMechanism) -> str:
    """Return the scenario that a faulty mechanism and its honest twin are played on."""
    return _SCENARIOS.get(faulty.name, "removed")


def twin_of(faulty: FaultyMechanism) -> str:
    """Return the name of the honest case of a faulty mechanism."""
    words = [faulty.twin.name, scenario_of(faulty), *(["low bits"] if faulty.is_rounding else [])]
    return "/".join([FAMILY, *("-".join(word.replace(",", "").replace("'", "").split()) for word in words)])


def case(name: str) -> Case:
    """Return a case by its name."""
    for faulty in FAULTY_MECHANISMS:
        if name == f"{FAMILY}/{faulty.name}":
            return _case(name, faulty, faulty.system, _truth_of_faulty(faulty), faulty.wrong, twin_of(faulty))
        if name == twin_of(faulty):
            return _case(name, faulty, faulty.twin.system, _truth_of_honest(faulty.twin))
    raise KeyError(name)


def _truth_of_faulty(faulty: FaultyMechanism) -> float | None:
    if faulty.name in _SHOWN:
        return NONE
    if faulty.name == "wrong-sampling-rate":
        return truth.sampled(1.0, _ROUNDS, _RATE, DELTA)
    return gaussian(_MU[faulty.name], DELTA) if faulty.name in _MU else None


def _truth_of_honest(honest: HonestMechanism) -> float:
    mu = _HONEST_MU[honest.name]
    return truth.sampled(1.0, _ROUNDS, honest_twins.SAMPLING_RATE, DELTA) if mu is None else gaussian(mu, DELTA)


def claim_of(stated: StatedClaim, covers_low_bits: bool = False) -> Claim:
    """Return a claim of the catalogue as one of the corpus.

    `covers_low_bits` says whether the claim covers the rounding of floating-point numbers as well.
    """
    epsilon = stated.epsilon if stated.mu is None else gaussian(stated.mu, DELTA)
    assert epsilon is not None
    limits = tuple((limit.epsilon, limit.delta) for limit in stated.limits)
    return Claim(epsilon, DELTA, str(stated.adjacency), stated.rounds, stated.mu, limits, covers_low_bits)


def _case(
    name: str, like: FaultyMechanism, system: AuditedSystem, true: float | None, wrong: str = "", twin: str = ""
) -> Case:
    """Return a case that plays a system on the scenario of a faulty mechanism."""
    claim = like.claim
    scenario = scenario_of(like)
    draws = np.random.default_rng(0)
    # Both systems are asked which numbers they show, so that a twin has the layout of its faulty mechanism.
    transcripts = [
        _transcript(runs, claim, scenario, number % 2 == 0, draws)
        for runs in (like.system, like.twin.system)
        for number in range(2 * _PROBED)
    ]
    form = _form_of(transcripts, scenario)
    difference = form.flat(transcripts[0].direction, np.zeros_like(transcripts[0].own), [0.0] * len(form.numbers) * 2)
    return Case(
        name,
        claim_of(claim, like.is_rounding),
        partial(_play, system, claim, scenario, form),
        form.layout,
        true,
        wrong,
        twin,
        difference if np.any(difference) else None,
    )


class _Form(NamedTuple):
    """Layout of the observations of a trial."""

    layout: Layout
    numbers: tuple[str, ...]  # names of the numbers beside the model
    has_own: bool  # whether the insider knows something of the noise: its own share

    def flat(self, steps: Floats, own_shares: Floats, beside: Iterable[float]) -> Floats:
        """Return the array of a trial: what is no number counts as 0."""
        rounds = np.concatenate([steps, own_shares], axis=1) if self.has_own else steps
        return np.nan_to_num(np.concatenate([rounds.ravel(), [*beside]]), nan=0.0, posinf=0.0, neginf=0.0)


def _form_of(transcripts: list[Transcript], scenario: str) -> _Form:
    rounds, size = transcripts[0].steps.shape
    numbers = evidence_names(transcripts)
    has_own = any(bool(np.any(transcript.own)) for transcript in transcripts)
    model_tensors = template(BY_NAME[scenario].model).tensors
    # A large model is seen by sums of its parameters.
    tensors = (
        tuple((key, span.stop - span.start) for key, span in model_tensors)
        if model_tensors[-1][1].stop == size
        else (("sums", size),)
    )
    shares = tuple((f"{OWN}{key}", width) for key, width in tensors) if has_own else ()
    flags = tuple(f"whether there is {key}" for key in numbers)
    return _Form(Layout(rounds, (*tensors, *shares), (*numbers, *flags)), numbers, has_own)


def _transcript(
    system: AuditedSystem, claim: StatedClaim, scenario: str, with_target: bool, generator: np.random.Generator
) -> Transcript:
    """Play one trial, and leave the global generators, from which strategies draw their noise, as they were."""
    with spared_generators(), no_news_from_flower():
        seed_generators(generator)
        return BlackBoxTrial(system, claim, BY_NAME[scenario], with_target, generator).play()


def _play(
    system: AuditedSystem, claim: StatedClaim, scenario: str, form: _Form, generator: np.random.Generator, target: bool
) -> Floats:
    transcript = _transcript(system, claim, scenario, target, generator)
    values = [float(transcript.numbers.get(name, np.nan)) for name in form.numbers]
    return form.flat(transcript.steps, transcript.own, [*values, *np.isfinite(values)])
