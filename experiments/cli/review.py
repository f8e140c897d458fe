"""The command that reviews a whole Flower app as it is: review."""

from pathlib import Path
from typing import Annotated

from experiments.cli.options import JsonOption, argument, option, print_json, switch
from experiments.cli.strategy import NoiseOption, NormOption, OutOption, TrustOption
from fl_audit.adjacency import Adjacency
from fl_audit.errors import choice, require


def review(
    app_dir: Annotated[Path, argument("APP_DIR", "Directory of a Flower app: its pyproject.toml has [tool.flwr.app].")],
    claim_epsilon: Annotated[
        float | None, option("--claim-epsilon", "E", "The claimed epsilon.  [default: what the app says itself]")
    ] = None,
    claim_delta: Annotated[float, option("--claim-delta", "D", "delta of the claimed epsilon.")] = 1e-5,
    claim_noise_multiplier: NoiseOption = None,
    adjacency: Annotated[
        str | None, option("--adjacency", "A", "Of the claim.  [default: as the app's mechanism has it]")
    ] = None,
    clipping_norm: NormOption = None,
    clients_clip: TrustOption = False,
    clients: Annotated[
        int | None, option("--clients", "N", "Clients of the app.  [default: its file's, or 10]")
    ] = None,
    rounds: Annotated[int | None, option("--rounds", "K", "Rounds of a game.  [default: the app's, at most 3]")] = None,
    quick: Annotated[bool, switch("--quick", "Fewer games.")] = False,
    minutes: Annotated[float, option("--minutes", "M", "Time limit.")] = 5.0,
    processes: Annotated[int, option("--processes", "N", "Games played at the same time.")] = 2,
    seed: Annotated[int, option("--seed", "N", "Seed of the games.")] = 0,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hold a whole Flower app, as it is, to what it says of its privacy."""
    if adjacency is not None:
        require(choice(Adjacency, "--adjacency", adjacency).value.endswith("client"), _about_clients(adjacency))
    for flag, value, least in (("--clients", clients, 2), ("--rounds", rounds, 1), ("--processes", processes, 1)):
        require(value is None or value >= least, f"{flag} {value}: accepted are whole numbers from {least}")
    require(minutes > 0, f"--minutes {minutes:g}: accepted are numbers above 0")
    from experiments.runs.progress import at_work
    from experiments.trials.review_process import reviewed
    from strategies.review.options import ReviewOptions

    wishes = ReviewOptions(
        claim_epsilon, claim_delta, claim_noise_multiplier, adjacency, clipping_norm, not clients_clip, clients, rounds,
        quick, 60 * minutes, processes, seed,
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


def _about_clients(adjacency: str) -> str:
    return (
        f"--adjacency {adjacency}: what clients do with their records is not seen from outside; accepted are "
        "add-remove-client and replace-client"
    )
