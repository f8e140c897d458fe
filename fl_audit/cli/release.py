"""The command `release`, which audits one released model and writes one page about it that can be signed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from fl_audit.adjacency import Adjacency
from fl_audit.cli.options import ADJACENCY_HELP, FailOption, ResultOptions
from fl_audit.cli.score_files import columns_for, read_numbers
from fl_audit.cli.sign import require_library
from fl_audit.errors import require
from fl_audit.runs.expected_errors import VIOLATED
from fl_audit.runs.option_declarations import argument, option, switch
from fl_audit.runs.progress import at_work
from fl_audit.value_checks import choice, require_number
from fl_audit.verdict.verdict import Verdict

if TYPE_CHECKING:
    from fl_audit.app_audits.claim_audit.claim import StatedClaim


def release(
    model: Annotated[Path, argument("MODEL", "The model's file: .safetensors or .npz.")],
    members: Annotated[
        Path, argument("MEMBERS", "Its losses on members: one a line, a column of a table, .npy, .npz.")
    ],
    path: Annotated[Path, argument("OTHERS", "Its losses on records that were not in the training, likewise.")],
    delta: Annotated[float, option("D", "delta of the claim, of the bounds and of Epsilon*, in [0, 1).")],
    *,
    claim_epsilon: Annotated[
        float | None, option("E", "The claimed epsilon of the whole training.  [default: nothing is claimed]")
    ] = None,
    adjacency: Annotated[str | None, option("NAME", f"With a claim. {ADJACENCY_HELP}", among=Adjacency)] = None,
    coins: Annotated[
        bool, switch("--coins", "A fair coin for each unit decided whether it was in: bounds then give a verdict.")
    ] = False,
    confidence: Annotated[float, option("P", "Confidence of bounds and intervals, in (0.5, 1).")] = 0.95,
    column: Annotated[
        list[str] | None, option("NAME", "Column of a table, or array of an .npz; twice for one of each file.")
    ] = None,
    policy: Annotated[
        Path | None, option("FILE", "A site's policy: the page says which of its ceilings are met.")
    ] = None,
    key: Annotated[Path | None, option("FILE", "Sign what --out holds by this key, as fl-audit sign does.")] = None,
    seed: Annotated[int, option("N", "Seed of the bootstrap of Epsilon*.")] = 0,
    options: ResultOptions,
    fail_on_violation: FailOption = False,
) -> None:
    """Audit one released model by its losses: bounds on epsilon, Epsilon*, the records that stand out, and ceilings.

    The page names records by their place in the file of losses, and shows no loss. Losses can refute a claim, and never
    confirm it. With --fail-on-violation a ceiling that is not met ends with status 4 too.
    """
    require(key is None or options.out is not None, "--key without --out: accepted is it with a directory to sign")
    require_number("--seed", seed, "whole numbers from 0")
    if policy is not None or key is not None:
        require_library()
    claim = _claim(claim_epsilon, delta, adjacency)
    names = columns_for(column)
    member_losses = read_numbers(members, names[0])
    other_losses = read_numbers(path, names[1])

    from fl_audit.app_audits.model_release.release_audit import measure_release, read_checkpoint
    from fl_audit.app_audits.model_release.release_page import release_result, with_ceilings, write_release_page

    checkpoint = read_checkpoint(model)
    answers = None
    site_policy = None
    if policy is not None:
        from fl_audit.runs.site_policy import read_policy

        site_policy = read_policy(policy)
    with at_work(f"measuring, {member_losses.size + other_losses.size} losses"):
        finding = measure_release(
            checkpoint, member_losses, other_losses, claim, delta, np.random.default_rng(seed), confidence, coins
        )
    result = release_result(model.stem, finding)
    if site_policy is not None:
        from fl_audit.runs.policy_judgement import judge_values

        answers = judge_values(site_policy, result)
        result = with_ceilings(result, answers)
    values = result.to_json()
    if options.out is not None:
        page = write_release_page(result, finding, member_losses, other_losses, options.out)
        values |= {"report": str(page)}
    if key is not None and options.out is not None:
        from fl_audit.runs.signed_statement import STATEMENTS, sign

        values |= {"signed": str(options.out / STATEMENTS), "key": sign(options.out, key).key}
    options.show(values)
    if key is not None and not options.as_json:
        print(f"signed: {values['signed']}\nkey: {values['key']}")
    is_failure = result.verdict is Verdict.VIOLATED or any(not answer.is_passed for answer in answers or ())
    if fail_on_violation and is_failure:
        raise typer.Exit(VIOLATED)


def _claim(epsilon: float | None, delta: float, adjacency: str | None) -> "StatedClaim | None":
    """Return the claim that the options state; raise `InputError` if they contradict each other."""
    require((epsilon is None) == (adjacency is None), "--claim-epsilon and --adjacency: accepted are both, or neither")
    if epsilon is None or adjacency is None:
        return None

    from fl_audit.app_audits.claim_audit.claim import StatedClaim

    return StatedClaim(choice(Adjacency, "--adjacency", adjacency), epsilon=epsilon, delta=delta)
