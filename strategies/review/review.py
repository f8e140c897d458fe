"""A review: the claims of an app, trials with the strategy that it would train with, and their results."""

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fl_audit.adjacency import Adjacency, Relation
from fl_audit.audits.black_box.claim import StatedClaim
from fl_audit.audits.black_box.claim_audit import Budget, ClaimAudit, Tell
from fl_audit.audits.black_box.transcript import Transcript
from fl_audit.errors import InputError, require
from fl_audit.randomness import Purpose, generator
from fl_audit.strategies.black_box.audited_strategy import no_news_from_flower
from fl_audit.strategies.black_box.audited_system import AuditedSystem, Observer, spared_generators
from fl_audit.strategies.black_box.legacy_adapter import layers_of
from fl_audit.strategies.black_box.metrics import names_asked
from fl_audit.strategies.black_box.recorder import errors_in
from fl_audit.strategies.black_box.scenarios import BY_NAME, Scenario
from fl_audit.strategies.black_box.trial_models import template_of
from fl_audit.strategies.black_box.trial_runner import LOSS, BlackBoxTrial, audit_system, kinds_of
from fl_audit.strategies.black_box.working_copy import WorkingCopy, apart
from fl_audit.strategies.review import plan as planning
from fl_audit.strategies.review.app import App, StandIns, read_app
from fl_audit.strategies.review.claims import StatedAppClaim, named_in, stated_by, training_doubt
from fl_audit.strategies.review.options import ReviewOptions
from fl_audit.strategies.review.plan import NUMBERS, USUAL_NODES, Leak, SideChannel, fewest
from fl_audit.strategies.review.records import OfRecords, of_records, of_records_words, of_settings
from fl_audit.strategies.review.seating import Seating
from fl_audit.strategies.review.strategy_capture import CapturedStrategy, catch
from fl_audit.verdict.verdict import Verdict

if TYPE_CHECKING:
    from fl_audit.strategies.review.clients import OfClients

REFERENCE = 3.0
"""The epsilon that is tested where there is no claim, and for numbers beside the model, which carry no noise."""
_OF_MODEL, _OF_EARLY, _OF_NUMBERS, _OF_CLIENTS = 0.75, 0.8, 0.85, 0.4
"""Shares of the time after which the trials about the model end, those with few clients, and those about numbers; and
the share of the time for the clients' own training before.
"""
_MOST_NAMES = 30  # most numbers that a strategy may ask of its clients


@dataclass(frozen=True)
class Review:
    """The result of reviewing an app."""

    app: str  # its name
    stated: StatedAppClaim  # its claim
    verdict: Verdict  # on the claim, or that there is none
    rounds: int  # rounds of the app
    played_rounds: int  # rounds of a trial
    nodes: int  # number of clients that the app sees
    asked: dict[str, int]  # number of clients that it asks in a round to train and to evaluate
    parameters: int | None  # parameters of its own model; None if trials were not played on it
    kinds: tuple[str, ...]  # the scenarios that were played on the model
    budget: str  # number of trials that tested the best distinguishers, in words
    result: ClaimAudit  # of the model that is released
    beside: ClaimAudit | None  # of the numbers beside it; None where the server looks, who sees them all
    leaks: tuple[Leak, ...]  # leaks beside the model
    remarks: tuple[str, ...]  # parts that could not be used unchanged, or not observed
    buffers: int | None = None  # number of buffers of its own model; None if the model was not seen
    of_records: tuple[OfRecords, ...] = ()  # places where its code names something for the privacy of records
    reported: tuple[str, ...] = ()  # names of the numbers that clients report in trials, beside that of examples
    asked_for: tuple[str, ...] = ()  # names of the reported numbers that the app's own code looks up in replies
    # Parts of the mechanism and its claims that could not be loaded or read, with reasons: nothing is certain then.
    unseen: tuple[str, ...] = ()
    inside: "OfClients | None" = None  # assessment of its clients' training; None if nothing names their privacy


def review(
    directory: Path, wishes: ReviewOptions, tell: Tell = lambda _: None, keep: Callable[[Review], None] = lambda _: None
) -> Review:
    """Review the app in a directory, or raise `InputError` if it cannot be reviewed; its code runs in this process.

    Parameters
    ----------
    directory
        Directory of the app.
    wishes
        Options of the review.
    tell
        Function that receives messages on progress.
    keep
        Function that receives the review so far, before the trials and after every distinguisher, for the case that the
        review cannot go on.
    """
    began = time.monotonic()
    stand_ins = StandIns(directory)
    sys.meta_path.append(stand_ins)
    app = read_app(directory)
    named = wishes.nodes or app.nodes
    caught = catch(app, named or USUAL_NODES, stand_ins)
    # Releases without noise are found after one round, as is the duration of a round.
    stated = _stated(caught, wishes, rounds=1)
    code = of_records(app.directory)
    inside = _look_inside(app, caught, named or USUAL_NODES, wishes, code)
    claim = stated.claim or StatedClaim(wishes.adjacency or Adjacency.ADD_REMOVE_CLIENT, epsilon=REFERENCE)
    nodes, remark = planning.nodes_of(caught.start.strategy, named, stated.clients)
    own, said = planning.own_model(caught.start)
    start = replace(caught.start, arguments={k: v for k, v in caught.start.arguments.items() if k != "initial_arrays"})
    stage = Seating(start, nodes, max(2, planning.asked_of(start.strategy, nodes)))
    weights = [one.weighted_by_key for one in layers_of(start.strategy) if hasattr(one, "weighted_by_key")]
    system = AuditedSystem(
        stage.made, caught.mods, None, stage.seats, stated.norm, wishes.is_clipped, stated.observer, own,
        *weights[-1:],
    )  # fmt: skip
    with spared_generators(), no_news_from_flower():
        system, slow, quick, has_written, unoffered = _rehearsed(system, claim)
        asked = dict(stage.most)
        kinds = planning.telling_kinds(kinds_of(system, claim), own, has_claim=stated.claim is not None)
        left = (_OF_MODEL * wishes.seconds - (time.monotonic() - began)) * wishes.processes
        # A noise multiplier tells what a claim is over several rounds; a reviewer's claim is about several already.
        says_noise = stated.claim is not None and stated.claim.noise_multiplier is not None
        is_composed = says_noise or (stated.claim is not None and stated.is_of_reviewer)
        wanted = (wishes.rounds or min(caught.rounds, planning.USUAL_ROUNDS)) if is_composed else 1
        is_free, is_quick = wishes.rounds is None, wishes.is_quick or stated.claim is None
        plan = planning.plan_of(kinds, claim, slow, quick, left, wanted, is_free, is_quick)
        claim = replace(claim, rounds=plan.rounds)
        names = [kind.name for kind in plan.kinds]
        if plan.rounds > 1:
            composed = planning.telling_kinds(kinds_of(system, claim), own, has_claim=True)
            names += [kind.name for kind in composed if kind not in kinds]

        about = [kind for aside, kind in NUMBERS.items() if asked["evaluate"] or aside is not SideChannel.EVALUATION]
        # The numbers beside the model are held to the claim, but to no more than trials can refute.
        epsilon = claim.limits[0].epsilon if claim.epsilon is None else claim.epsilon
        of_numbers = StatedClaim(claim.adjacency, epsilon=min(epsilon, REFERENCE), delta=claim.delta)
        is_beside = stated.observer is Observer.CLIENT
        names_found, unseen = _claimed(caught, stated, app, code)
        buffers = None if own is None else planning.buffers_of(own)

        def found(result: ClaimAudit, beside: ClaimAudit | None) -> Review:
            results = [result] if beside is None else [result, beside]
            planned = [*names, *(about if is_beside else ())]
            of_code = () if inside is not None and inside.assessment is not None else names_found
            remarks = [*caught.remarks, *remark, *said, *_remarks(of_code, unoffered, stand_ins, has_written)]
            return Review(
                app.name, stated,
                _with_clients(_verdict(stated, result, caught.rounds, plan.rounds, unseen, names_found), stated,
                    inside),
                caught.rounds, plan.rounds, nodes, asked, None if own is None else template_of(own).size, tuple(names),
                plan.words, result, beside, planning.leaks(results, planned), tuple(remarks), buffers, names_found,
                (LOSS, *system.metrics), system.metrics, unseen, inside,
            )  # fmt: skip

        def held(
            to: StatedClaim, names: Sequence[str], budget: Budget, share: float, so_far: Callable[[ClaimAudit], Review],
            what: AuditedSystem = system,
        ) -> ClaimAudit:  # fmt: skip
            seconds = max(1.0, share * wishes.seconds - (time.monotonic() - began))
            return audit_system(
                what, to, budget=budget, seed=wishes.seed, processes=wishes.processes, include=names, seconds=seconds,
                tell=tell, keep=lambda result: keep(so_far(result)),
            )  # fmt: skip

        waiting = _not_begun(of_numbers, about) if is_beside else None
        keep(found(_not_begun(claim, names), waiting))
        result = held(claim, names, plan.budget, _OF_MODEL, lambda so_far: found(so_far, waiting))
        early = planning.early_of(start.strategy, stated.clients)
        if early is not None:
            few = Seating(start, early[0], max(2, early[1]))
            plain = [kind.name for kind in kinds_of(system, claim) if kind.name in ("removed", "opposite")]
            with_few = replace(system, strategy=few.made, clients=few.seats)
            came = held(claim, plain, fewest(claim), _OF_EARLY, lambda _: found(result, waiting), with_few)
            remark.append(_early_words(*early, stated.clients, came))
        if not is_beside:
            return found(result, None)
        return found(
            result, held(of_numbers, about, fewest(of_numbers), _OF_NUMBERS, lambda so_far: found(result, so_far))
        )


def _not_begun(claim: StatedClaim, kinds: Sequence[str]) -> ClaimAudit:
    """Return an audit of which no trial has been played."""
    return ClaimAudit(claim, Verdict.INCONCLUSIVE, (), (), 0, unplayed=tuple(kinds))


def _claimed(
    caught: CapturedStrategy, stated: StatedAppClaim, app: App, found: tuple[OfRecords, ...]
) -> tuple[tuple[OfRecords, ...], tuple[str, ...]]:
    """Return the app's names for the privacy of records, and those claims that could not be loaded or read.

    Settings that name privacy belong to the claim where there is one, and to records where the code names something for
    them. Without either they may be about clients as well, and their effect was not observed.
    """
    if stated.claim is not None:
        return found, caught.unseen
    if found:
        return (*found, *of_settings(app.directory / "pyproject.toml", app.config)), (*caught.unseen, *stated.unseen)
    return (), (*caught.unseen, *stated.unseen, *filter(None, [named_in(app.config)]))


def _remarks(
    found: tuple[OfRecords, ...], unoffered: Sequence[str], stand_ins: StandIns, has_written: bool
) -> Iterator[str]:
    """Yield further remarks on an app for the reader."""
    if found:
        names = of_records_words(found)
        yield f"its code names {names}: what that guarantees of records is kept or broken inside clients, unseen"
    if unoffered:
        names = ", ".join(unoffered)
        yield f"it looks for {names} in what clients report, and fails if these are numbers: nothing is said of them"
    if stand_ins.packages:
        yield f"inert stand-ins took the place of what is not installed: {', '.join(stand_ins.packages)}"
    if has_written:
        yield "it writes files while it trains: they were written to a copy, and removed after every trial"


def _verdict(
    stated: StatedAppClaim,
    result: ClaimAudit,
    rounds: int,
    played: int,
    unseen: Sequence[str] = (),
    found: tuple[OfRecords, ...] = (),
) -> Verdict:
    """Return the verdict on the claim, which is about the whole training where a reviewer names its epsilon.

    A guarantee about records, or one that does not exist, is not tested by a review.
    """
    # Unobserved parts may keep the claim, add noise, or reveal more.
    if unseen:
        return Verdict.INCONCLUSIVE
    if stated.claim is None:
        return Verdict.NOT_AUDITED if found else Verdict.NO_GUARANTEE
    is_doubted = result.verdict is Verdict.CONSISTENT and training_doubt(stated, rounds, played) != ""
    return Verdict.INCONCLUSIVE if is_doubted else result.verdict


def _look_inside(
    app: App, caught: CapturedStrategy, nodes: int, wishes: ReviewOptions, code: tuple[OfRecords, ...]
) -> "OfClients | None":
    """Train the clients if the code names a library that can be recorded or the reviewer asks for it; else None."""
    if not app.client or not (wishes.client_data or any(one.what == "Opacus" for one in code)):
        return None
    # Opacus is imported where clients use it, and nowhere else.
    from fl_audit.strategies.review.clients import look_into_clients

    return look_into_clients(app, caught, nodes, wishes.client_data, _OF_CLIENTS * wishes.seconds)


def _with_clients(verdict: Verdict, stated: StatedAppClaim, inside: "OfClients | None") -> Verdict:
    """Return one verdict on the server's and the clients' results."""
    if inside is None or inside.assessment is None:
        return verdict
    own = inside.assessment.verdict
    if Verdict.VIOLATED in (verdict, own):
        return Verdict.VIOLATED
    if own is Verdict.NOT_AUDITED:
        return verdict
    # If nothing is claimed about clients, the claim is that about records.
    if stated.claim is None and verdict in (Verdict.NO_GUARANTEE, Verdict.NOT_AUDITED):
        return own
    return Verdict.INCONCLUSIVE if Verdict.INCONCLUSIVE in (verdict, own) else verdict


def _early_words(first: int, asked: int, made_for: int | None, came: ClaimAudit) -> str:
    """Return a sentence on an app that begins with fewer clients than its noise is made for."""
    said = f"it begins as soon as {first} clients are there and asks {asked} of them, and its noise is for {made_for}"
    if came.worst is None:
        return f"{said}: no trials were played with so few"
    broken = "which breaks the claim" if came.verdict is Verdict.VIOLATED else "which does not refute the claim"
    told = f"{came.worst.right / came.worst.trials:.0%} of {came.worst.trials} trials were guessed rightly"
    return f"{said}: with so few {told}, where the claim allows {came.claim.success:.0%}, {broken}"


def _stated(caught: CapturedStrategy, wishes: ReviewOptions, rounds: int) -> StatedAppClaim:
    """Return the claim: the reviewer's, or the app's own."""
    adjacency = None if wishes.adjacency is None else Adjacency(wishes.adjacency)
    found = stated_by(caught.start.strategy, [one.mod for one in caught.mods], adjacency, rounds, wishes.delta)
    if wishes.epsilon is not None or wishes.noise_multiplier is not None:
        between = adjacency or Adjacency.ADD_REMOVE_CLIENT
        noise, over = wishes.noise_multiplier, wishes.noise_over
        claim = StatedClaim(between, wishes.epsilon, wishes.delta, noise, rounds, over)
        usual = stated_by(caught.start.strategy, [one.mod for one in caught.mods], None, rounds, wishes.delta)
        own = None if usual.claim is None else usual.claim.mu or usual.mu
        if own is not None and usual.claim is not None:
            # The same noise, and a sum that may move farther than between the neighbours that the app has in mind.
            moves, meant = (one.neighbours.sensitivity_of_sum(1.0) for one in (claim, usual.claim))
            own *= max(1.0, moves / meant)
        found = replace(found, claim=claim, source="named by the reviewer", is_of_reviewer=True, mu=own)
    return replace(found, norm=wishes.norm or found.norm)


def _rehearsed(system: AuditedSystem, claim: StatedClaim) -> tuple[AuditedSystem, float, float, bool, tuple[str, ...]]:
    """Play short trials until the strategy accepts the numbers that clients report.

    Raises `InputError` if no trial can be played with the app.

    The result has the system with the names of these numbers; the seconds of a trial on the app's own model and on a
    small one; whether a trial writes files; and names that the app looks up and does not accept as numbers.
    """
    plain = "removed" if claim.neighbours.relation is Relation.ADD_REMOVE else "opposite"
    own = BY_NAME[f"{plain}, own model"] if system.model is not None else BY_NAME[plain]
    copy, unoffered = WorkingCopy(Path.cwd()), dict[str, None]()
    for _ in range(_MOST_NAMES):
        with names_asked() as names:
            seen, slow, blamed = _timed(system, claim, own, copy)
        # The app looks for numbers that our clients did not report, as its own do: what it asks for, it is given, and
        # first what it cannot do without.
        missing = re.fullmatch(r"KeyError: '([^']+)'", seen.refusal or "")
        known = (LOSS, system.weight, *system.metrics, *unoffered)
        wanted = [name for name in (missing.groups() if missing else names) if name not in known]
        if not wanted:
            break
        tried = replace(system, metrics=(*system.metrics, *dict.fromkeys(wanted)))
        if seen.refusal is None and _timed(tried, claim, own, copy)[0].refusal is not None:
            unoffered |= dict.fromkeys(wanted)
            continue
        system = tried
    _require_played(seen, blamed)
    quick = _timed(system, claim, BY_NAME[plain], copy)[1]
    copy.remove()
    return system, slow, quick, copy.was_written, tuple(unoffered)


def _require_played(seen: Transcript, blamed: str) -> None:
    """Refuse an app with which no trial can be played, naming the cause: its strategy, or its mods."""
    errors = errors_in(seen)
    is_refused = seen.refusal is not None
    if (blamed and is_refused) or (errors and (is_refused or not seen.has_release)):
        said = f"{seen.refusal}, {blamed}" if blamed else f"they replied with the error {errors[0]!r}"
        raise InputError(
            f"the modifiers of its clients cannot be played: {said}; accepted are modifiers that bear an ordinary "
            "message to train"
        )
    require(seen.refusal is None, f"the strategy cannot be played: it raised {seen.refusal}")


def _timed(
    system: AuditedSystem, claim: StatedClaim, kind: Scenario, copy: WorkingCopy
) -> tuple[Transcript, float, str]:
    """Play a trial; return its transcript, its seconds, and the mod that ended it, if one did."""
    began, trial = time.monotonic(), BlackBoxTrial(system, claim, kind, True, generator(0, Purpose.BLACK_BOX))
    with apart(copy, thoroughly=False):
        seen = trial.play()
    return seen, time.monotonic() - began, trial.blamed
