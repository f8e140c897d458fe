"""The commands about guarantees that need no run: `calibrate` and `account`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, assert_never

from fl_audit.adjacency import Adjacency
from fl_audit.cli.guarantee_output import AccountantResult, OutputFormatOptions, print_guarantee
from fl_audit.cli.ledger import LedgerOptions, account_ledger
from fl_audit.cli.options import ADJACENCY_HELP, NoiseOverOption, noise_over_of
from fl_audit.errors import InputError
from fl_audit.privacy import defaults
from fl_audit.privacy.accounting_enums import Accountant, MultiplierReference, SignalToNoiseAdaptivity
from fl_audit.privacy.stated_releases import StatedReleases
from fl_audit.runs.option_declarations import option, switch
from fl_audit.value_checks import choice
from fl_audit.words import name_list, plural

if TYPE_CHECKING:
    from fl_audit.privacy.targets import Target

DeltaOption = Annotated[float, option("D", "delta of (epsilon, delta)-DP, in (0, 1).", rich_help_panel="Guarantee")]
SamplingRateOption = Annotated[
    float, option("Q", "Poisson sampling rate of records, users or clients, in (0, 1].", rich_help_panel="Accounting")
]
AccountantOption = Annotated[
    str | None,
    option(
        "NAME",
        f"One of {', '.join(Accountant)}.  [default: the exact one, gdp, or pld with sampling, beside all others]",
        among=Accountant,
        rich_help_panel="Accounting",
    ),
]


@dataclass(frozen=True)
class TargetOptions:
    """Command-line options for the target of a calibration, such as an epsilon; exactly one is given."""

    HELP_GROUP: ClassVar[str] = "Guarantee"

    belief: Annotated[float | None, option("P", "Largest belief, above the prior and below 1.")] = None
    advantage: Annotated[
        float | None, option("A", "Largest advantage, in (0, 1): the exact one, whoever accounts.")
    ] = None
    epsilon: Annotated[float | None, option("E", "Largest epsilon, positive.")] = None
    reconstruction: Annotated[
        float | None,
        option(
            "P",
            "Largest probability that an attacker names the right one of "
            f"{defaults.CANDIDATES:,} equally likely records, users or clients.",
        ),
    ] = None

    def target(self) -> "Target":
        """Return the guarantee that the noise must give; raise `InputError` unless exactly one option states it."""
        from fl_audit.privacy.targets import one_target

        return one_target({name.replace("_", "-"): var for name, var in vars(self).items()}, "--")


def calibrate(
    delta: DeltaOption,
    rounds: Annotated[int, option("K", "Number of releases, at least 1.", rich_help_panel="Guarantee")],
    adjacency: Annotated[str, option("NAME", ADJACENCY_HELP, among=Adjacency, rich_help_panel="Guarantee")],
    *,
    options: TargetOptions,
    sampling_rate: SamplingRateOption = defaults.SAMPLING_RATE,
    accountant: AccountantOption = defaults.ACCOUNTANT,
    sensitivities: Annotated[
        str,
        option(
            "NAME",
            "adaptive: what a record changes may follow from earlier releases, as in every private training; fixed: "
            "every round has the same signal-to-noise ratio, which allows tighter beliefs.",
            among=SignalToNoiseAdaptivity,
            rich_help_panel="Accounting",
        ),
    ] = defaults.SENSITIVITIES.value,
    format_options: OutputFormatOptions,
) -> None:
    """Find the noise that a guarantee needs; one option names the guarantee.

    Exactly one of --belief, --advantage, --epsilon and --reconstruction states the guarantee. The noise is printed as a
    noise multiplier: its standard deviation divided by the sensitivity.
    """

    target = options.target()

    from fl_audit.privacy.events import gaussian_rounds

    events = gaussian_rounds(1.0, rounds, sampling_rate)
    neighbours = choice(Adjacency, "--adjacency", adjacency)
    adaptivity = choice(SignalToNoiseAdaptivity, "--sensitivities", sensitivities)

    from fl_audit.privacy.calibration import SMALLEST_SAMPLED_NOISE, noise_multiplier_for
    from fl_audit.privacy.claim import Claim
    from fl_audit.privacy.guarantee import derive_guarantee

    def found(name: Accountant) -> AccountantResult:
        claim = Claim(neighbours, events, delta, defaults.PRIOR, name, adaptivity)
        noise = noise_multiplier_for(target, claim)
        guarantee = derive_guarantee(claim.with_noise(noise))
        remark = guarantee.remark
        if sampling_rate < 1 and noise == SMALLEST_SAMPLED_NOISE:
            remark = (
                f"the guarantee holds with any noise, because a {neighbours.unit} takes part in any of the {rounds} "
                f"rounds with a probability of {claim.participation:.3g} only; {noise:g} is the smallest noise "
                "multiplier offered"
            )
        return AccountantResult(name, guarantee, remark)

    title = f"noise for {_target_text(target, neighbours)} at delta {delta:g} over {plural(rounds, 'round')}"
    print_guarantee(found, events, accountant, title, format_options, saving=True)


@dataclass(frozen=True)
class NoiseAndRoundsOptions:
    """Command-line options that state noise, rounds and adjacency of a training."""

    HELP_GROUP: ClassVar[str] = "Training"

    noise_multiplier: Annotated[float | None, option("Z", "Noise over what --noise-over names, positive.")] = None
    noise_over: NoiseOverOption = MultiplierReference.SENSITIVITY.value
    rounds: Annotated[int | None, option("K", "Number of releases, at least 1.")] = None
    adjacency: Annotated[str | None, option("NAME", ADJACENCY_HELP, among=Adjacency)] = None
    per_round: Annotated[
        bool, switch("--per-round", "Print epsilon after every round too; with pld, after 50 rounds at most.")
    ] = False

    def stated_releases(self, sampling_rate: float, may_lack: bool) -> StatedReleases | None:
        """Return the releases of the training as the options state them.

        Parameters
        ----------
        sampling_rate
            Poisson sampling rate, above 0 and at most 1.
        may_lack
            Whether noise multiplier, rounds and adjacency may all be left out; the result is then None.

        Raises
        ------
        InputError
            If some of the three options are missing, or one has a value that is not accepted.
        """
        options_given = {
            "--noise-multiplier": self.noise_multiplier,
            "--rounds": self.rounds,
            "--adjacency": self.adjacency,
        }
        if may_lack and all(value is None for value in options_given.values()):
            return None
        if self.noise_multiplier is None or self.rounds is None or self.adjacency is None:
            missing = " and ".join(repr(flag) for flag, value in options_given.items() if value is None)
            values = f"; --adjacency is one of {name_list(Adjacency, 'or')}" if self.adjacency is None else ""
            raise InputError(f"Missing option {missing}: accepted are all of {name_list(options_given)}{values}")
        neighbours = choice(Adjacency, "--adjacency", self.adjacency)
        over = noise_over_of(self.noise_over, self.noise_multiplier, "--noise-multiplier")
        return StatedReleases(neighbours, self.noise_multiplier, self.rounds, sampling_rate, over)


def account(
    delta: DeltaOption,
    *,
    options: NoiseAndRoundsOptions,
    sampling_rate: SamplingRateOption = defaults.SAMPLING_RATE,
    accountant: AccountantOption = defaults.ACCOUNTANT,
    together: LedgerOptions,
    format_options: OutputFormatOptions,
) -> None:
    """Say what a noise multiplier guarantees, or what the trainings of a ledger spend together.

    --noise-multiplier, --rounds and --adjacency state a training, and are given together. A ledger is a file that lists
    trainings on the same data. With --ledger, a training that is stated is added to this file.
    """

    terms = options.stated_releases(sampling_rate, may_lack=together.ledger is not None)
    if together.ledger is not None:
        if options.per_round:
            raise InputError("--per-round belongs to one training: accepted is it without --ledger")
        account_ledger(together.ledger, together, terms, delta, format_options.as_json)
        return
    assert terms is not None, "asked for above"
    if together != LedgerOptions():
        raise InputError(
            "--name, --trainings, --selection and --budget belong to --ledger: accepted are none without it"
        )
    noise = terms.noise_multiplier

    from fl_audit.privacy.events import gaussian_rounds

    events = gaussian_rounds(noise, terms.rounds, terms.sampling_rate)

    from fl_audit.privacy.claim import Claim
    from fl_audit.privacy.guarantee import derive_guarantee

    def found(name: Accountant) -> AccountantResult:
        guarantee = derive_guarantee(
            Claim(terms.adjacency, events, delta, defaults.PRIOR, name, defaults.SENSITIVITIES)
        )
        return AccountantResult(name, guarantee, guarantee.remark)

    title = f"what noise multiplier {noise:g} guarantees at delta {delta:g} over {plural(terms.rounds, 'round')}"

    def spent(rounds: int, name: Accountant) -> float:
        from fl_audit.privacy.accounting import PrivacyProfile
        from fl_audit.privacy.accounting import account as epsilon_of

        first = gaussian_rounds(noise, rounds, terms.sampling_rate)
        return epsilon_of(PrivacyProfile(first, terms.adjacency), name, delta)

    print_guarantee(found, events, accountant, title, format_options, spent=spent if options.per_round else None)


def _target_text(target: "Target", adjacency: Adjacency) -> str:
    """Return a target of the guarantee as a phrase, in the units of the adjacency."""
    from fl_audit.privacy.targets import (
        AdvantageTarget,
        BeliefTarget,
        EpsilonTarget,
        NoiseMultiplierTarget,
        ReconstructionTarget,
    )

    match target:
        case BeliefTarget(belief):
            return f"a belief of at most {belief:g}"
        case AdvantageTarget(advantage):
            return f"an advantage of at most {advantage:g}"
        case EpsilonTarget(epsilon):
            return f"epsilon of at most {epsilon:g}"
        case ReconstructionTarget(probability, candidates):
            return f"at most {probability:g} to name the right one of {candidates:,} {adjacency.unit}s"
        case NoiseMultiplierTarget(noise):
            return f"a noise multiplier of {noise:g}"
        case _:
            assert_never(target)
