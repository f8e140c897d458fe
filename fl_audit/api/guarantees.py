"""Functions for guarantees: `account` derives the guarantee of a training, `calibrate` finds the noise for a target."""

from fl_audit.adjacency import Adjacency
from fl_audit.privacy import defaults
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.accounting_enums import MultiplierReference
from fl_audit.privacy.calibration import noise_multiplier_for
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import gaussian_rounds
from fl_audit.privacy.guarantee import Guarantee, derive_guarantee
from fl_audit.privacy.identifiability_bounds import SignalToNoiseAdaptivity
from fl_audit.privacy.targets import one_target
from fl_audit.value_checks import choice


def account(
    noise_multiplier: float,
    rounds: int,
    delta: float,
    *,
    adjacency: Adjacency | str,
    sampling_rate: float = defaults.SAMPLING_RATE,
    prior: float = defaults.PRIOR,
    accountant: Accountant | str | None = defaults.ACCOUNTANT,
    sensitivities: SignalToNoiseAdaptivity | str = defaults.SENSITIVITIES,
    noise_over: MultiplierReference | str = MultiplierReference.SENSITIVITY,
) -> Guarantee:
    """Return the privacy guarantee of a training that releases sums with Gaussian noise.

    Parameters
    ----------
    noise_multiplier
        Standard deviation of the noise, as a multiple of the quantity that `noise_over` names; positive.
    rounds
        Number of releases, at least 1.
    delta
        Delta of (epsilon, delta)-DP, above 0 and below 1; also the probability with which the insider's belief may
        exceed its bound.
    adjacency
        Relation between neighbouring data sets, such as `add-remove-record` or `replace-client`; see `Adjacency`.
    sampling_rate
        Probability with which a record, user or client takes part in a round, above 0 and at most 1.
    prior
        The insider's prior belief in D, the true data set; above 0 and below 1.
    accountant
        The accountant of epsilon: `rdp-classic`, `rdp`, `pld` or `gdp`. None takes the exact one, which is `gdp`
        without sampling and `pld` with sampling.
    sensitivities
        `fixed` if every round has the same signal-to-noise ratio, else `adaptive`. This affects only the bound on
        beliefs.
    noise_over
        Quantity to which the noise multiplier is relative: `sensitivity`, which is twice the clipping norm if a unit is
        replaced and otherwise the clipping norm, or `clipping-norm`, as in Opacus, TensorFlow Privacy and
        dp-accounting.

    Raises
    ------
    InputError
        If a name is unknown, a number is out of its range, or the accountant cannot account for the training.

    Examples
    --------
    >>> round(account(5.46, 30, 1e-3, adjacency="replace-record", accountant="gdp").epsilon, 2)
    3.15
    >>> round(account(1.0, 100, 1e-5, adjacency="replace-record", sampling_rate=0.01).epsilon, 3)
    0.344
    >>> copied = {"adjacency": "replace-record", "sampling_rate": 0.01, "noise_over": "clipping-norm"}
    >>> round(account(1.0, 100, 1e-5, **copied).epsilon, 3)
    0.895
    """
    over = choice(MultiplierReference, "noise over", noise_over)
    neighbours = choice(Adjacency, "adjacency", adjacency)
    events = gaussian_rounds(over.over_sensitivity(noise_multiplier, neighbours), rounds, sampling_rate)
    return derive_guarantee(Claim(neighbours, events, delta, prior, accountant, sensitivities))


def calibrate(
    rounds: int,
    delta: float,
    *,
    adjacency: Adjacency | str,
    belief: float | None = None,
    advantage: float | None = None,
    epsilon: float | None = None,
    reconstruction: float | None = None,
    candidates: int | None = None,
    sampling_rate: float = defaults.SAMPLING_RATE,
    prior: float = defaults.PRIOR,
    accountant: Accountant | str | None = defaults.ACCOUNTANT,
    sensitivities: SignalToNoiseAdaptivity | str = defaults.SENSITIVITIES,
) -> Guarantee:
    """Return the guarantee with the smallest Gaussian noise that achieves a target, such as an epsilon.

    Exactly one of the targets `belief`, `advantage`, `epsilon` and `reconstruction` is given. The guarantee states the
    noise multiplier relative to the sensitivity, `noise_multiplier`, and relative to the clipping norm,
    `noise_over_clipping_norm`, as Opacus, TensorFlow Privacy and dp-accounting do.

    Parameters
    ----------
    rounds
        Number of releases, at least 1.
    delta
        Delta of (epsilon, delta)-DP, above 0 and below 1; see `account`.
    adjacency
        Relation between neighbouring data sets; see `account`.
    belief
        Target: largest posterior belief of the insider in D, the true data set; above the prior and below 1.
    advantage
        Target: largest membership advantage of the insider, above 0 and below 1. It is the exact advantage, delta at
        epsilon 0, with every accountant. With `rdp-classic`, the bound `rho_alpha` stays below the target as well.
    epsilon
        Target: largest epsilon, positive.
    reconstruction
        Target: largest probability with which an attacker who knows all other records picks the right one of
        `candidates` equally likely records; above 1 / `candidates` and below 1. It bounds singling out too: the
        probability that a description which fits one person in `candidates` fits the person of the record.
    candidates
        Number of equally likely records for `reconstruction`, at least 2; None stands for 1000.
    sampling_rate
        Probability of participation in a round, above 0 and at most 1; see `account`.
    prior
        The insider's prior belief in D, above 0 and below 1.
    accountant
        The accountant of epsilon; see `account`.
    sensitivities
        `fixed` or `adaptive`; see `account`.

    Raises
    ------
    InputError
        If not exactly one target is given, a name is unknown, a number is out of its range, or the accountant cannot
        account for the training.

    Examples
    --------
    >>> guarantee = calibrate(30, 1e-3, adjacency="replace-record", belief=0.9, accountant="rdp-classic")
    >>> round(guarantee.noise_multiplier, 2)
    9.95
    """
    target = one_target(
        {
            "belief": belief,
            "advantage": advantage,
            "epsilon": epsilon,
            "reconstruction": reconstruction,
            "candidates": candidates,
        }
    )
    events = gaussian_rounds(1.0, rounds, sampling_rate)
    claim = Claim(adjacency, events, delta, prior, accountant, sensitivities)
    return derive_guarantee(claim.with_noise(noise_multiplier_for(target, claim)))
