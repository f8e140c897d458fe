"""Local differential privacy by example: coins, Laplace noise, an accountant, and guessing what somebody hides.

    python -m experiments.studies.local_privacy_walkthrough [--people N] [--seed S]

Each part makes a small column of data, does to it what the library does to whole data sets, and prints the numbers
beside those that theory gives. It needs no files and takes seconds. The course is that of an introduction in a blog:
randomised response, the Laplace mechanism, what repetition costs, and attribute inference.
"""

import argparse
import math
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from experiments.cli.main import guarded
from fl_audit.adjacency import Adjacency
from fl_audit.arrays import Floats
from fl_audit.data.randomisers import RandomisedBits
from fl_audit.errors import require
from fl_audit.privacy.events import GaussianRelease, LaplaceRelease, ReleaseEvent
from fl_audit.privacy.profile import PrivacyProfile
from fl_audit.privacy.randomised_response import keeping_probability, response_advantage, truth_probability
from fl_audit.randomness import Purpose, generator

TWO_COINS = math.log(3)  # Epsilon of two fair coins
SHARE = 0.3  # share of people with the secret
EPSILONS = (0.1, 0.5, 1.0, 2.0, 3.0)
MOST_CIGARETTES = 40
STEPS = (1, 10, 100, 1000)
DELTA = 1e-5
_FEWEST_PEOPLE = 100


@dataclass(frozen=True)
class Survey:
    """What a survey with coins finds."""

    epsilon: float  # of one answer
    true_share: float  # share of people with the secret, which nobody sees
    told_share: float  # share of answers "yes"
    estimate: float  # what the surveyor makes of them
    standard_error: float  # of the estimate, from the coins alone


def secrets(people: int, seed: int) -> Floats:
    """Return who has the secret (1) and who has not (0), shape (people,): each has it with probability 0.3."""
    return (generator(seed, Purpose.SYNTHETIC_RECORDS).random(people) < SHARE).astype(np.float64)


def survey(secret: Floats, epsilon: float, seed: int) -> Survey:
    """Ask everybody once, with coins, and estimate how many have the secret.

    With p the probability of the truth, "yes" comes with probability (1 - p) + (2p - 1) share. Solved for the share,
    that is the estimate: twice (told - 1/4) for two fair coins.
    """
    told = RandomisedBits(epsilon).perturb(secret, generator(seed, Purpose.RECORD_RANDOMISER))
    truth, kept, yes = truth_probability(epsilon), keeping_probability(epsilon), float(told.mean(dtype=np.float64))
    error = math.sqrt(truth * (1 - truth) / secret.size) / kept
    return Survey(epsilon, float(secret.mean()), yes, (yes - (1 - truth)) / kept, error)


@dataclass(frozen=True)
class Ward:
    """A hospital's sum of cigarettes a day, before and after one patient leaves."""

    cigarettes: int  # of the patient who leaves
    exact_difference: int  # of two exact answers
    noisy_differences: Floats  # of two answers with Laplace noise each, shape (repetitions,)
    scale: float  # of the noise


def ward(epsilon: float, seed: int, patients: int = 200, repetitions: int = 10_000) -> Ward:
    """Ask for the sum over all patients twice, a patient having left between, exactly and with Laplace noise.

    A patient changes the sum by at most 40, so noise of scale 40 / epsilon makes one answer epsilon-private.
    """
    draw = generator(seed, Purpose.SYNTHETIC_RECORDS, client=1)
    smoked = draw.integers(0, MOST_CIGARETTES + 1, size=patients)
    before, after = int(smoked.sum()), int(smoked[:-1].sum())
    scale = MOST_CIGARETTES / epsilon
    noise = generator(seed, Purpose.RECORD_RANDOMISER, client=1).laplace(scale=scale, size=(2, repetitions))
    return Ward(int(smoked[-1]), before - after, before - after + noise[0] - noise[1], scale)


@dataclass(frozen=True)
class Repeated:
    """What a number of equal releases promises together."""

    steps: int  # number of releases
    averaged_error: float  # standard deviation of the mean of all answers, in units of the sensitivity
    added: float  # sum of the epsilons of all releases; infinite for Gaussian noise, which has none
    accounted: float  # Epsilon at delta = 1e-5 by the accountant of the library
    advantage: float  # by how much an insider guesses better than a coin whether the record is in: from 0 to 1


def repeated_laplace(epsilon: float, steps: int) -> Repeated:
    """Return what the same question costs that is answered again and again with Laplace noise."""
    deviation = math.sqrt(2) / epsilon
    return _repeated(LaplaceRelease(1.0, 1 / epsilon, steps), deviation, steps * epsilon)


def repeated_gaussian(noise_multiplier: float, steps: int) -> Repeated:
    """Return what steps of a training cost in which every record takes part, with Gaussian noise on each gradient."""
    return _repeated(GaussianRelease(1.0, noise_multiplier, steps), noise_multiplier, math.inf)


def _repeated(event: ReleaseEvent, deviation: float, added: float) -> Repeated:
    profile = PrivacyProfile((event,), Adjacency.ADD_REMOVE_RECORD)
    averaged = deviation / math.sqrt(event.count)
    return Repeated(event.count, averaged, added, profile.epsilon(DELTA), profile.advantage())


@dataclass(frozen=True)
class Inference:
    """How well a stranger guesses who has the secret, from the answers."""

    epsilon: float  # of one answer
    # `belief_after_yes`, `belief_after_no`: that a person has the secret, by Bayes' rule.
    belief_after_yes: float
    belief_after_no: float
    expected_success: float  # share of right guesses by theory
    success: float  # share of right guesses
    # Share of those with the secret that are said to have it, less the share of those without: with even odds before,
    # tanh(epsilon/2).
    advantage: float


def infer(secret: Floats, epsilon: float, prior: float, seed: int) -> Inference:
    """Guess by Bayes' rule: odds before, times the ratio of the answer's probabilities with and without the secret.

    Parameters
    ----------
    secret
        Who has it, shape (people,).
    epsilon
        Of one answer.
    prior
        What the stranger believes before any answer, above 0 and below 1; it guesses "has it" from one half on.
    seed
        Of the coins.
    """
    randomiser, with_secret, without = RandomisedBits(epsilon), np.ones(1), np.zeros(1)

    def belief(answers: NDArray[np.generic]) -> Floats:
        return np.asarray(expit(logit(prior) + randomiser.log_odds(answers[:, np.newaxis], with_secret, without)))

    after_yes, after_no = belief(np.array([1.0, 0.0])).tolist()
    told = randomiser.perturb(secret, generator(seed, Purpose.RECORD_RANDOMISER, client=2))
    guessed = belief(told) >= 0.5
    truth = truth_probability(epsilon)
    # For each answer, the likelier of both states is guessed.
    expected = max(prior * truth, (1 - prior) * (1 - truth)) + max(prior * (1 - truth), (1 - prior) * truth)
    has = secret == 1
    advantage = float(guessed[has].mean() - guessed[~has].mean())
    return Inference(epsilon, after_yes, after_no, expected, float((guessed == has).mean()), advantage)


def survey_lines(people: int, seed: int) -> list[str]:
    """Tell the part about coins."""
    found = survey(secrets(people, seed), TWO_COINS, seed)
    return [
        *_paragraph(
            "Who is asked for a secret tosses a coin. Heads: the truth. Tails: a second coin says yes or no. Whoever "
            "said yes can put it down to the second coin."
        ),
        f"  P(yes | secret) = 1/2 + 1/4 = {truth_probability(TWO_COINS):.2f}, P(yes | none) = 1/4: "
        f"epsilon = ln 3 = {found.epsilon:.4f}",
        f"  {people:,} people answer: {found.told_share:.2%} say yes",
        f"  so 2 (yes - 1/4) = {found.estimate:.2%} have it, +- {found.standard_error:.2%} for the coins; "
        f"in truth {found.true_share:.2%}",
    ]


def ward_lines(epsilon: float, seed: int) -> list[str]:
    """Tell the part about Laplace noise."""
    found = ward(epsilon, seed)
    noisy = found.noisy_differences
    return [
        *_paragraph(
            f"A hospital tells how many cigarettes its patients smoke a day, all together. One patient, who smokes "
            f"{found.cigarettes}, leaves, and the question is asked again."
        ),
        f"  exact answers differ by {found.exact_difference}: what the patient smokes",
        f"  one patient changes the sum by at most {MOST_CIGARETTES}: Laplace noise of scale {MOST_CIGARETTES} / "
        f"{epsilon:g} = {found.scale:g} on each answer",
        f"  noisy answers differ by {noisy[0]:.0f}, {noisy[1]:.0f}, {noisy[2]:.0f}, ...: "
        f"{noisy.mean():.1f} on average, with a standard deviation of {noisy.std():.0f} (theory {2 * found.scale:.0f})",
        f"  one answer tells whether somebody who smokes {MOST_CIGARETTES} is in with an advantage of at most "
        f"{1 - math.exp(-epsilon / 2):.3f}",
    ]


def repetition_lines() -> list[str]:
    """Tell the part about the accountant."""
    lines = _paragraph(
        "Noise can be averaged away by asking again, so every answer must be paid for. Adding up epsilons is always "
        f"right; at a delta of {DELTA:g} an accountant finds less for many small steps."
    )
    lines.append(f"  {'steps':>6}  {'error of the mean':>17}  {'sum':>6}  {'accounted':>9}  {'advantage':>9}")
    rows = [
        *(("Laplace noise, epsilon 0.1 a step", repeated_laplace(0.1, steps)) for steps in STEPS),
        *(("Gaussian noise, noise multiplier 10", repeated_gaussian(10.0, steps)) for steps in STEPS),
    ]
    for position, (name, row) in enumerate(rows):
        lines += [f"  {name}"] if position % len(STEPS) == 0 else []
        added = f"{row.added:.1f}" if math.isfinite(row.added) else "none"
        lines.append(
            f"  {row.steps:>6}  {row.averaged_error:>17.2f}  {added:>6}  {row.accounted:>9.2f}  {row.advantage:>9.3f}"
        )
    return lines


def inference_lines(people: int, seed: int) -> list[str]:
    """Tell the part about attribute inference."""
    lines = _paragraph(
        f"A stranger knows that {SHARE:.0%} have the secret, sees an answer, and guesses by Bayes' rule whether that "
        "person has it. Where the answer is too weak to change its mind, it says nobody has it."
    )
    lines.append(f"  {'epsilon':>8}  {'after yes':>9}  {'after no':>8}  {'right':>7}  {'theory':>7}  {'even odds':>10}")
    for epsilon in EPSILONS:
        found = infer(secrets(people, seed), epsilon, SHARE, seed)
        lines.append(
            f"  {epsilon:>8g}  {found.belief_after_yes:>9.3f}  {found.belief_after_no:>8.3f}  {found.success:>7.2%}  "
            f"{found.expected_success:>7.2%}  {response_advantage(epsilon, 1):>10.3f}"
        )
    lines.append("  even odds: the advantage of whoever knew nothing before, tanh(epsilon/2)")
    return lines


def walkthrough(people: int, seed: int) -> list[str]:
    """Return all lines of the walk-through.

    Parameters
    ----------
    people
        Number of people in the survey, from 100.
    seed
        Of the made-up data and of all noise, from 0.

    Raises
    ------
    InputError
        If a number is out of its range.
    """
    require(people >= _FEWEST_PEOPLE, f"--people {people}: accepted are whole numbers from {_FEWEST_PEOPLE}")
    parts: tuple[tuple[str, Iterable[str]], ...] = (
        ("1. Coins: randomised response", survey_lines(people, seed)),
        ("2. Laplace noise on a sum", ward_lines(0.5, seed)),
        ("3. What an accountant adds up", repetition_lines()),
        ("4. Guessing what somebody hides", inference_lines(people, seed)),
    )
    return [line for title, lines in parts for line in (title, *lines, "")]


def _paragraph(text: str) -> list[str]:
    return textwrap.wrap(text, width=100, initial_indent="  ", subsequent_indent="  ")


def main() -> None:
    """Print the walk-through."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=10_000, help="people in the survey (default: 10000)")
    parser.add_argument("--seed", type=int, default=0, help="of the made-up data and the noise (default: 0)")
    options = parser.parse_args()
    print("\n".join(walkthrough(options.people, options.seed)))


if __name__ == "__main__":
    guarded(main)
