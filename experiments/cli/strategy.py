"""The commands that audit the claims of other people's code: strategy, review and live."""

from pathlib import Path
from typing import Annotated

import typer

from fl_audit.adjacency import Adjacency
from fl_audit.audits.black_box.claim import StatedClaim
from fl_audit.errors import choice, require, require_number
from fl_audit.experiments import late
from fl_audit.experiments.black_box import strategy_process
from fl_audit.experiments.black_box.review_process import reviewed
from fl_audit.experiments.cli.options import (
    AdjacencyOption,
    JsonOption,
    NoiseOverOption,
    argument,
    noise_over_of,
    option,
    print_json,
    switch,
)
from fl_audit.experiments.names import VIOLATED
from fl_audit.experiments.runs.progress import at_work
from fl_audit.privacy.names import NoiseOver
from fl_audit.strategies.review.options import ReviewOptions
from fl_audit.user_modules import require_named

NoiseOption = Annotated[
    float | None,
    option("Z", "In place of epsilon: no easier to tell than Gaussian noise with this multiplier; see --noise-over."),
]
NormOption = Annotated[float | None, option("C", "Norm that the claim refers to.  [default: the strategy's, or 1]")]
TrustOption = Annotated[
    bool, switch("--trust-client-clipping", "Nothing but the client's own code clips: no trial sends more.")
]
OutOption = Annotated[Path | None, option("DIR", "Write report.html and summary.json there.")]


def strategy(
    factory: Annotated[
        str,
        argument(
            "PACKAGE.MODULE:FACTORY",
            "Makes a Flower strategy or a fl_audit.strategies.black_box.AuditedSystem; an argument is the number of "
            "clients.",
        ),
    ],
    adjacency: AdjacencyOption,
    claim_epsilon: Annotated[float | None, option("E", "The claimed epsilon.")] = None,
    claim_delta: Annotated[float, option("D", "delta of the claimed epsilon.")] = 1e-5,
    claim_noise_multiplier: NoiseOption = None,
    noise_over: NoiseOverOption = NoiseOver.SENSITIVITY.value,
    rounds: Annotated[int, option("K", "Rounds that the claim is for.")] = 1,
    clients: Annotated[int, option("N", "Clients in a trial, at least 2.")] = 4,
    clipping_norm: NormOption = None,
    trust_client_clipping: TrustOption = False,
    mod: Annotated[
        list[str] | None, option("PACKAGE.MODULE:NAME", "A mod of the client app, outermost first; may be repeated.")
    ] = None,
    observer: Annotated[
        str, option("client|server", "Who looks: another client, or the server.", among=("client", "server"))
    ] = "client",
    exclude: Annotated[
        list[str] | None, option("TRIAL", "A scenario that the claim does not cover; may be repeated.")
    ] = None,
    include: Annotated[
        list[str] | None, option("TRIAL", "Play this scenario and no other one; may be repeated.")
    ] = None,
    confidence: Annotated[float, option("P", "Confidence, in (0.5, 1).")] = 0.95,
    quick: Annotated[bool, switch("--quick", "Fewer trials: half a minute at most, not three.")] = False,
    processes: Annotated[int, option("N", "Trials played at the same time.")] = 2,
    seconds: Annotated[
        float | None,
        option("S", "Time for the trials, above 0: what it is too short for is said.  [default: as long as they take]"),
    ] = None,
    seed: Annotated[int, option("N", "Seed of the trials.")] = 0,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hold a Flower strategy to its claim, with thousands of short trials through its own interface."""
    neighbours = choice(Adjacency, "--adjacency", adjacency)
    for named in (factory, *(mod or [])):
        require_named(named)
    for flag, trials in (("--exclude", exclude), ("--include", include)):
        for name in trials or []:
            require(
                name in late.scenarios.BY_NAME, f"{flag} {name!r}: accepted are {', '.join(late.scenarios.BY_NAME)}"
            )
    if seconds is not None:
        require_number("--seconds is", seconds, "numbers above 0")
    require_number("--processes", processes, "whole numbers from 1")
    over = noise_over_of(noise_over, claim_noise_multiplier, "--claim-noise-multiplier")
    StatedClaim(neighbours, claim_epsilon, claim_delta, claim_noise_multiplier, rounds, over)
    wishes = strategy_process.StrategyOptions(
        factory, str(neighbours), claim_epsilon, claim_delta, claim_noise_multiplier, str(over), rounds, clients,
        clipping_norm, not trust_client_clipping, tuple(mod or ()), observer, tuple(exclude or ()),
        None if include is None else tuple(include), confidence, quick, processes, seconds, seed,
    )  # fmt: skip
    with at_work(f"trials against {factory}"):
        found = strategy_process.held_apart(wishes, out)
    if as_json:
        print_json(found["result"])
        return
    for line in found["lines"]:
        print(line)
    if found["report"] is not None:
        print(f"report: {found['report']}")


def review(
    app_dir: Annotated[Path, argument("APP_DIR", "Directory of a Flower app: its pyproject.toml has [tool.flwr.app].")],
    claim_epsilon: Annotated[
        float | None, option("E", "The claimed epsilon.  [default: what the app says itself]")
    ] = None,
    claim_delta: Annotated[float, option("D", "delta of the claimed epsilon.")] = 1e-5,
    claim_noise_multiplier: NoiseOption = None,
    noise_over: NoiseOverOption = NoiseOver.SENSITIVITY.value,
    adjacency: Annotated[str | None, option("A", "Of the claim.  [default: as the app's mechanism has it]")] = None,
    clipping_norm: NormOption = None,
    trust_client_clipping: TrustOption = False,
    clients: Annotated[int | None, option("N", "Clients of the app.  [default: its file's, or 10]")] = None,
    rounds: Annotated[int | None, option("K", "Rounds of a trial.  [default: the app's, at most 3]")] = None,
    quick: Annotated[bool, switch("--quick", "Fewer trials.")] = False,
    minutes: Annotated[float, option("M", "Time limit.")] = 5.0,
    processes: Annotated[int, option("N", "Trials played at the same time.")] = 2,
    seed: Annotated[int, option("N", "Seed of the trials.")] = 0,
    client_data: Annotated[
        str | None,
        option(
            "PACKAGE.MODULE:FUNCTION",
            "Data for its clients: takes the place of the app's function of that name, or of its Flower data set; "
            "it gets a partition and the number of partitions.",
        ),
    ] = None,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hold a whole Flower app, as it is, to what it says of its privacy."""
    if adjacency is not None:
        said = "what clients do with their records is not seen from outside; accepted are"
        named = f"--adjacency {adjacency}: {said} add-remove-client and replace-client"
        require(choice(Adjacency, "--adjacency", adjacency).value.endswith("client"), named)
    for flag, value, least in (("--clients", clients, 2), ("--rounds", rounds, 1), ("--processes", processes, 1)):
        if value is not None:
            require_number(flag, value, f"whole numbers from {least}")
    require_number("--minutes", minutes, "numbers above 0")
    if client_data is not None:
        require_named(client_data)
    over = noise_over_of(noise_over, claim_noise_multiplier, "--claim-noise-multiplier")
    wishes = ReviewOptions(
        claim_epsilon, claim_delta, claim_noise_multiplier, over, adjacency, clipping_norm, not trust_client_clipping,
        clients,
        rounds, quick, 60 * minutes, processes, seed, client_data,
    )  # fmt: skip
    with at_work(f"review of {app_dir}"):
        found = reviewed(app_dir, wishes, out)
    if as_json:
        print_json(found)
        return
    print(found["headline"])
    for about, said in found["screen"]:
        print(f"* {about}: {said}")
    if "report" in found:
        print(f"report: {found['report']}")


def live(
    directory: Annotated[Path, argument("DIR", "Where the observer keeps the rounds; training may go on.")],
    coins: Annotated[Path, option("FILE", "Holds the seed of the canaries' coins, a whole number.")],
    finished: Annotated[
        bool, switch("--finished", "The training is over, though its last claimed round is missing.")
    ] = False,
    confidence: Annotated[float, option("P", "Of the bounds, in (0.5, 1).")] = 0.95,
    out: Annotated[Path | None, option("FILE", "The page.  [default: DIR/report.html]")] = None,
    fail_on_violation: Annotated[
        bool, switch("--fail-on-violation", f"Exit with status {VIOLATED} if the guarantee is violated.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Say what the canaries of a running or finished training certify."""
    numbers = late.live_audit.measure_live(directory, late.observer_store.seed_in(coins), confidence, finished)
    if as_json:
        print_json(numbers.to_json())
    else:
        for line in late.live_page.live_lines(numbers):
            print(line)
        print(f"report: {late.live_page.write_live_page(numbers, out or directory / 'report.html')}")
    if fail_on_violation and numbers.verdict == "violated":
        raise typer.Exit(VIOLATED)
