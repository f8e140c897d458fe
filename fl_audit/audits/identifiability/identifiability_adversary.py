"""Compute the evidence of the differential identifiability adversary of Bernau et al. 2021 (Algorithm 1).

The adversary (the insider) knows every record but one, sees each release, and compares D with its neighbour D'. It
works in the log domain, on all trials of a batch at once, and also measures the noise (`noise_measurement`). Each step
is a pure function of public values, so steps can run concurrently.

**DP-SGD at the clients.** Here the insider sees only the average of the clients' models, and the noise is added inside
each client's training. If each client takes one step, the release is a noisy sum with an exact likelihood ratio
(`fl_audit.federation.local_dpsgd`). After several steps the distribution of the release has no closed form.
The insider's score is then **no likelihood ratio**, and the insider has no beliefs. The score measures how far the
release lies in the direction in which the differing record moves it, so it is higher if the record was in. It is the
log-odds of a Gaussian approximation. The mean of this approximation is the expected result of the clients' steps, and
its variance adds up all steps as if they were independent. In truth a step depends on the noise of earlier steps and on
the sampled records.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fl_audit.array_types import Floats
from fl_audit.errors import require
from fl_audit.federation.hypotheses import likelihood_ratio_input
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.local_dpsgd import (
    ClientRandomness,
    expected_update,
    private_steps,
    rounding_of_steps,
    trained_privately,
)
from fl_audit.federation.observed_rounds import (
    ObservedRound,
    is_too_inaccurate,
    refuse_blurred,
    refuse_blurred_updates,
    require_seen,
)
from fl_audit.mechanisms.likelihood_ratio import Hypotheses
from fl_audit.mechanisms.noises.mechanism_noise import NoiseOrigin
from fl_audit.mechanisms.threat_model import Adversary
from fl_audit.privacy.accounting_enums import VectorNorm
from fl_audit.verdict.noise_measurement import NoiseMeasurer
from fl_audit.verdict.noise_statistics import NoiseStatistics, join


@dataclass(frozen=True)
class RoundEvidence:
    """The insider's evidence from one round: increments of the log-odds, local sensitivities and noise measurements."""

    increment: Floats  # increment of the log-odds of D against D' in this round, float64 (trials,)
    # Distance between the sums of contributions under D and D', in the norm of the clipping, float64 (trials,).
    local_sensitivity: Floats
    # The noise along the difference of D and D' as normal scores, in columns for D and D', float64 (trials, 2); see
    # `fl_audit.mechanisms.likelihood_ratio.ReleaseLlrs`.
    scores: Floats
    residuals: NoiseStatistics  # the measurements of the noise


def observe(federation: LoadedFederation, observed: ObservedRound, batch_trials: int | None = None) -> RoundEvidence:
    """Return the insider's evidence from one round.

    A round in which D and D' do not differ adds 0 to the log-odds. If the insider sees only models, it recovers the
    release from them with a rounding error. In every trial in which D and D' differ, this error must be at most a
    thousandth of the noise's standard deviation. Otherwise `InputError` is raised.

    Source: Bernau et al. 2021, Lemma 1 and Algorithm 1, as a log-likelihood ratio, which the kind of noise computes.

    Parameters
    ----------
    federation
        The federation with the data sets D and D'.
    observed
        The insider's view of the round.
    batch_trials
        Number of trials in the original batch, if LLRs are recomputed for only its first trials; otherwise None. See
        `StackedModel.clipped_sum`.
    """
    mechanism = federation.public.mechanism
    rounding = observed.rounding(federation.public.mechanism)
    question = likelihood_ratio_input(federation, observed, batch_trials)
    evidence = log_likelihood_ratio(federation, question.hypotheses, question.observed, observed.side.norms_array)
    refuse = refuse_blurred
    if mechanism.noise.origin is NoiseOrigin.TRAINING:
        refuse = refuse_blurred_updates
        rounding = rounding_of_steps(federation, observed)
    if rounding is None:
        return evidence
    share = rounding.cpu().numpy() / mechanism.noise_scale(evidence.local_sensitivity, federation.public.threat_model)
    refuse(share[evidence.local_sensitivity > 0])
    # If D and D' do not differ, noise that is scaled to the difference may be smaller than rounding, and tells nothing.
    return replace(evidence, residuals=evidence.residuals.of_recovered(is_too_inaccurate(share)))


def log_likelihood_ratio(
    federation: LoadedFederation, hypotheses: Hypotheses, release: Tensor, norms: Floats | None = None
) -> RoundEvidence:
    """Return the log-likelihood ratio of D against D' for noisy sums, and measurements of the noise.

    Parameters
    ----------
    federation
        The federation, whose mechanism defines the noise.
    hypotheses
        The sums of contributions that are expected under D and under D'.
    release
        The noisy sums of all trials, float32 or float64, shape (trials, parameters).
    norms
        Clipping norms of the round, float64, shape (trials,), if clipping is adaptive; otherwise None.
    """
    mechanism = federation.public.mechanism
    noise = mechanism.noise
    sensitivity = hypotheses.sensitivity_in(noise.norm)
    scales = mechanism.noise_scale(sensitivity, federation.public.threat_model, norms)
    scale = torch.from_numpy(scales).to(release.device)
    distance = torch.from_numpy(hypotheses.sensitivity_in(VectorNorm.L2)).to(release.device)
    meter = NoiseMeasurer(
        federation.model.layout, federation.directions, noise, with_neither=federation.public.is_secretly_sampled
    )
    weighed = []
    residuals = []
    for comparison in hypotheses.compare_with(release):
        rows = comparison.rows
        weighed.append(noise.release_llrs(comparison, scale[rows], distance[rows], hypotheses))
        residuals.append(meter.measure(comparison, scale[rows], distance[rows]))
    increment, scores = (
        torch.cat([getattr(step_increments, name) for step_increments in weighed]) for name in ("log_odds", "scores")
    )
    statistics = join(residuals, axis=0)
    measured = statistics if federation.offers_noise_measurement else statistics.without_hypothesis_fields()
    return RoundEvidence(increment.cpu().numpy(), sensitivity, scores.cpu().numpy(), measured)


def score(federation: LoadedFederation, observed: ObservedRound) -> Floats:
    """Return the insider's score for the membership of the differing record in one round, float64 (trials,).

    The score of a whole training is the sum of the scores of its rounds. Raises `InputError` if the view lacks a value
    that the insider needs.

    Parameters
    ----------
    federation
        The federation, whose clients train with DP-SGD.
    observed
        The insider's view of the round.
    """
    # The residual of a release after subtracting its expectation.
    if federation.public.threat_model.adversary is Adversary.SERVER:
        # The server sees the contribution of the target's client separately.
        tensor = require_seen(observed.side.contribution, "the contribution of the target's client").double().clone()
        clients = [federation.victim]
        known_counts = dict[int, int]()
        trials = ()
    else:
        tensor = observed.sums(federation.public.mechanism).double().clone()
        knowing = (federation.insider, *federation.colluders)
        seeds = require_seen(observed.side.noise_seeds, "the seeds of the noise that the insider knows").tolist()
        require(len(seeds) == len(knowing), f"{len(seeds)} seeds of noise were shown: accepted are {len(knowing)}")
        clients = list(range(len(federation.shards)))
        known_counts = dict(zip(knowing, seeds, strict=True))
        trials = tuple(require_seen(observed.side.trial_numbers, "the numbers of the trials").tolist())
    # The contribution of the differing record, and the variance of a coordinate, from the clients with unknown noise.
    direction = torch.zeros_like(tensor)
    variance = 0.0
    for client in clients:
        if client in known_counts:
            tensor -= trained_privately(
                federation, client, observed.start, observed.number, ClientRandomness(known_counts[client], trials)
            ).updates
            continue
        expected, of_differing = expected_update(federation, client, observed.start)
        tensor -= expected
        direction += of_differing
        variance += private_steps(federation.public.mechanism).update_variance(len(federation.shards[client]))
    return np.asarray((((tensor - direction / 2) * direction).sum(dim=1) / variance).cpu().numpy())
