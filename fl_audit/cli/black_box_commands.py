"""The commands that audit the privacy claims of other people's code: `strategy`, `review` and `live`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_type_hints

from fl_audit.adjacency import Adjacency, Unit
from fl_audit.app_audits.launchers import strategy_audit_launcher
from fl_audit.app_audits.launchers.review_launcher import reviewed
from fl_audit.app_audits.trial_options import ReviewOptions, StrategyOptions
from fl_audit.cli.options import ADJACENCY_HELP, FailOption, ResultOptions, end_if_violated, noise_over_of
from fl_audit.errors import InputError, require
from fl_audit.privacy.accounting_enums import MultiplierReference
from fl_audit.runs.option_declarations import argument, option, switch
from fl_audit.runs.progress import at_work
from fl_audit.user_modules import require_named
from fl_audit.value_checks import choice, require_number
from fl_audit.words import name_list

_REVIEW_SETTINGS = ("noise-over", "clipping-norm", "trust-client-clipping", "clients", "processes", "seed")
"""Settings of the trials of `review` that few users need, named as the fields of `ReviewOptions`."""
_STRATEGY_SETTINGS = (*_REVIEW_SETTINGS, "observer", "confidence", "seconds")
"""Settings of the trials of `strategy` that few users need, named as the fields of `StrategyOptions`."""
_WORDS = {"true": True, "false": False}


def settings_of(options: type[Any], names: Sequence[str], texts: Sequence[str]) -> dict[str, Any]:
    """Return the values that `--set` gives as "name=value", by the fields of a dataclass of options.

    `names`: The names of the accepted settings, with hyphens, such as "clipping-norm".

    Raises
    ------
    InputError
        If a text has another form, a setting is unknown, or a value is of another type.
    """
    hints = get_type_hints(options)
    values = dict[str, Any]()
    for text in texts:
        name, equals, word = text.partition("=")
        if not equals or name not in names:
            nearest = get_close_matches(name, names, n=1, cutoff=0.0)[0]
            raise InputError(f"--set {text!r}: nearest is {nearest}=VALUE, accepted are {name_list(names)}")
        key = name.replace("-", "_")
        values[key] = _value(text, word.strip(), hints[key])
    return values


def _value(text: str, word: str, hint: Any) -> bool | int | float | str:
    """Return the value of a word as the type of a setting: a truth value, a whole number, a number or text."""
    try:
        if hint is bool:
            return _WORDS[word]
        if hint in (int, int | None):
            return int(word)
        return word if hint is str else float(word)
    except (KeyError, ValueError):
        accepted = "true and false" if hint is bool else "whole numbers" if hint in (int, int | None) else "numbers"
        raise InputError(f"--set {text}: accepted are {accepted}") from None


@dataclass(frozen=True)
class ClaimOptions:
    """Command-line options that state the claim, which the trials try to refute.

    They become a `StatedClaim` only with adjacency, rounds and norm, which an app or a strategy may name itself.
    """

    HELP_GROUP: ClassVar[str] = "Claim"

    claim_epsilon: Annotated[float | None, option("E", "The claimed epsilon.")] = None
    claim_delta: Annotated[float, option("D", "delta of the claimed epsilon.")] = 1e-5
    claim_noise_multiplier: Annotated[
        float | None,
        option(
            "Z",
            "In place of epsilon: no easier to tell than Gaussian noise with this multiplier, over the sensitivity, "
            "or with --set noise-over=clipping-norm over the norm.",
        ),
    ] = None

    def as_keywords(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options and the given settings of the trials as keyword arguments of `TrialOptions`.

        Raises `InputError` if they contradict each other.
        """
        noise_over = settings.get("noise_over", MultiplierReference.SENSITIVITY)
        return {
            **settings,
            "epsilon": self.claim_epsilon,
            "delta": self.claim_delta,
            "noise_multiplier": self.claim_noise_multiplier,
            "noise_over": noise_over_of(noise_over, self.claim_noise_multiplier, "--claim-noise-multiplier"),
        }


def _set_option(names: Sequence[str]) -> Any:
    help_text = f"A rarer setting, may be repeated: {', '.join(names)}."
    completions = [f"{name}=" for name in names]
    return option("NAME=VALUE", help_text, among=completions, names=("--set",), rich_help_panel="Trials")


QuickOption = Annotated[bool, switch("--quick", "Fewer trials, in a fraction of the time.", rich_help_panel="Trials")]
Scenarios = list[str] | None
_OF_CLIENTS = tuple(adjacency for adjacency in Adjacency if adjacency.unit is Unit.CLIENT)


def strategy(
    factory: Annotated[
        str,
        argument(
            "PACKAGE.MODULE:FACTORY",
            "Makes a Flower strategy, or a fl_audit.app_audits.black_box.AuditedSystem, which has mods of the client "
            "app too; an argument is the number of clients.",
        ),
    ],
    adjacency: Annotated[str, option("NAME", ADJACENCY_HELP, among=Adjacency, rich_help_panel="Claim")],
    *,
    claim: ClaimOptions,
    rounds: Annotated[
        int | None,
        option(
            "K",
            "Rounds that the claim is for.  [default: 1, with a look for later rounds without noise]",
            rich_help_panel="Claim",
        ),
    ] = None,
    exclude: Annotated[
        Scenarios,
        option("TRIAL", "A scenario that the claim does not cover; may be repeated.", rich_help_panel="Trials"),
    ] = None,
    include: Annotated[
        Scenarios, option("TRIAL", "Play this scenario and no other one; may be repeated.", rich_help_panel="Trials")
    ] = None,
    quick: QuickOption = False,
    set_: Annotated[list[str] | None, _set_option(_STRATEGY_SETTINGS)] = None,
    options: ResultOptions,
    fail_on_violation: FailOption = False,
) -> None:
    """Audit a Flower strategy against its claim, with thousands of short trials through its own interface.

    Each trial runs the strategy with or without a target. The trials show how well the two cases can be told apart. If
    this is better than the claim allows, the claim is violated.
    """
    neighbours = choice(Adjacency, "--adjacency", adjacency)
    require_named(factory)
    _require_scenarios({"--exclude": exclude, "--include": include})
    settings = settings_of(StrategyOptions, _STRATEGY_SETTINGS, set_ or [])
    strategy_options = StrategyOptions(
        factory,
        str(neighbours),
        rounds=rounds,
        exclude=tuple(exclude or ()),
        include=None if include is None else tuple(include),
        is_quick=quick,
        **claim.as_keywords(settings),
    )
    strategy_options.claim()  # refuses a claim before a process is started
    with at_work(f"trials against {factory}"):
        answer = strategy_audit_launcher.audit_in_subprocess(strategy_options, options.out)
    options.show(answer)
    end_if_violated(answer["verdict"], fail_on_violation)


def _require_scenarios(scenarios_given: Mapping[str, Scenarios]) -> None:
    from fl_audit.app_audits.black_box.scenarios import BY_NAME

    for flag, names in scenarios_given.items():
        for name in names or []:
            scenarios = BY_NAME
            if name not in scenarios:
                # The nearest name comes first, because the list of accepted names is long.
                nearest = get_close_matches(name, scenarios, n=1, cutoff=0.0)[0]
                raise InputError(f"{flag} {name!r}: nearest is {nearest!r}, accepted are {name_list(scenarios)}")


def review(
    app_dir: Annotated[Path, argument("APP_DIR", "Directory of a Flower app: its pyproject.toml has [tool.flwr.app].")],
    *,
    claim: ClaimOptions,
    adjacency: Annotated[
        str | None,
        option(
            "NAME",
            f"Adjacency of the claim: {' or '.join(_OF_CLIENTS)}.  [default: as the app's mechanism has it]",
            among=_OF_CLIENTS,
            rich_help_panel="Claim",
        ),
    ] = None,
    rounds: Annotated[
        int | None, option("K", "Rounds of a trial.  [default: the app's, at most 3]", rich_help_panel="Trials")
    ] = None,
    quick: QuickOption = False,
    minutes: Annotated[float, option("M", "Time limit.", rich_help_panel="Trials")] = 5.0,
    client_data: Annotated[
        str | None,
        option(
            "PACKAGE.MODULE:FUNCTION",
            "Data for its clients: takes the place of the app's function of that name, or of its Flower data set; "
            "it gets a partition and the number of partitions.",
            rich_help_panel="Trials",
        ),
    ] = None,
    set_: Annotated[list[str] | None, _set_option(_REVIEW_SETTINGS)] = None,
    options: ResultOptions,
    fail_on_violation: FailOption = False,
) -> None:
    """Audit a whole Flower app, unchanged, against the privacy that it claims.

    The command runs many short trials of the app, with and without a target, and compares how well they can be told
    apart with the claim. --claim-epsilon or --claim-noise-multiplier states the claim. Without these options, the claim
    is the one that the app's own code makes.
    """
    if adjacency is not None:
        remedy = f"what clients do with their records is not seen from outside; accepted are {name_list(_OF_CLIENTS)}"
        is_of_clients = choice(Adjacency, "--adjacency", adjacency) in _OF_CLIENTS
        require(is_of_clients, f"--adjacency {adjacency}: {remedy}")
    if rounds is not None:
        require_number("--rounds", rounds, "whole numbers from 1")
    require_number("--minutes", minutes, "numbers above 0")
    if client_data is not None:
        require_named(client_data)
    settings = settings_of(ReviewOptions, _REVIEW_SETTINGS, set_ or [])
    review_options = ReviewOptions(
        adjacency=adjacency,
        rounds=rounds,
        seconds=60 * minutes,
        client_data=client_data,
        is_quick=quick,
        **claim.as_keywords(settings),
    )
    with at_work(f"review of {app_dir}"):
        answer = reviewed(app_dir, review_options, options.out)
    options.show(answer)
    end_if_violated(answer["verdict"], fail_on_violation)


def live(
    directory: Annotated[Path, argument("DIR", "Where the observer keeps the rounds; training may go on.")],
    coins: Annotated[Path, option("FILE", "Holds the seed of the canaries' coins, a whole number.")],
    finished: Annotated[
        bool, switch("--finished", "The training is over, though its last claimed round is missing.")
    ] = False,
    confidence: Annotated[float, option("P", "Confidence of the bounds, in (0.5, 1).")] = 0.95,
    *,
    options: ResultOptions,
    fail_on_violation: FailOption = False,
) -> None:
    """Bound epsilon from below by the canaries of a running or finished training.

    Canaries are clients that send a known update in secretly drawn rounds. An observer, in the server or in another
    client, stores in DIR how strongly it sees the canaries in each round.
    """
    out = options.out or directory
    require(out.is_dir() or not out.exists(), f"--out {out} is a file: accepted is a directory, new or not")

    from fl_audit.app_audits.audit_results import live_result
    from fl_audit.app_audits.live.live_audit import measure_live
    from fl_audit.app_audits.live.live_page import write_live_page
    from fl_audit.app_audits.live.observer_store import seed_in

    finding = measure_live(directory, seed_in(coins), confidence, finished)
    result = live_result(directory.resolve().name, finding)
    values = result.to_json()
    if options.out is not None or not options.as_json:
        values |= {"report": str(write_live_page(result, finding, out))}
    options.show(values)
    end_if_violated(finding.verdict, fail_on_violation)
