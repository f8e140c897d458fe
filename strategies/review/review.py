"""Review of a Flower app: find its privacy claim, test it by trials of its strategy, and collect the results."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fl_audit.adjacency import Adjacency
from fl_audit.audits.black_box.claim import StatedClaim
from fl_audit.audits.black_box.claim_audit import ClaimAudit, Tell, TrialBudget
from fl_audit.strategies.black_box.audited_strategy import no_news_from_flower
from fl_audit.strategies.black_box.audited_system import AuditedSystem, Observer, StrategyStartCall, spared_generators
from fl_audit.strategies.black_box.black_box_trial import LOSS
from fl_audit.strategies.black_box.legacy_adapter import layers_of
from fl_audit.strategies.black_box.message_tensors import Arrays
from fl_audit.strategies.black_box.trial_models import template_of
from fl_audit.strategies.black_box.trial_runner import audit_system, kinds_of
from fl_audit.strategies.review import plan as planning
from fl_audit.strategies.review.app_loading import AppDescription, StandIns, read_app
from fl_audit.strategies.review.claims import StatedAppClaim, named_in, stated_by, training_doubt
from fl_audit.strategies.review.dry_run import rehearsed
from fl_audit.strategies.review.options import ReviewOptions
from fl_audit.strategies.review.plan import NUMBERS, USUAL_NODES, SideChannel, SideChannelResult, fewest
from fl_audit.strategies.review.record_privacy_mentions import (
    RecordPrivacyMention,
    of_records,
    of_records_words,
    of_settings,
)
from fl_audit.strategies.review.strategy_capture import CapturedStrategy, catch
from fl_audit.strategies.review.virtual_clients import TrialStrategyFactory
from fl_audit.verdict.verdict import Verdict

if TYPE_CHECKING:
    from fl_audit.strategies.review.client_inspection import ClientInspection

REFERENCE = 3.0
"""Epsilon that is tested if nothing is claimed, and the largest epsilon that is tested for side channels."""
_OF_MODEL, _OF_EARLY, _OF_NUMBERS, _OF_CLIENTS = 0.75, 0.8, 0.85, 0.4
"""Shares of the time limit, counted from the start of the review.

Trials on the model end at `_OF_MODEL`, trials with few clients at `_OF_EARLY`, and trials on metrics at `_OF_NUMBERS`.
`_OF_CLIENTS` is the share of time for the clients' own training, which comes before the trials.
"""


@dataclass(frozen=True)
class ReviewResult:
    """Result of reviewing a Flower app: its privacy claim, the verdict on it, the trials' results, and remarks."""

    app: str  # name of the app
    stated: StatedAppClaim  # privacy claim of the app or the reviewer
    verdict: Verdict  # verdict on the claim, or the verdict that there is no claim
    rounds: int  # number of rounds of the app's training
    played_rounds: int  # number of rounds of a trial
    nodes: int  # number of clients that the app's strategy sees
    asked: dict[str, int]  # most clients that the strategy asks in a round, for `train` and `evaluate`
    parameters: int | None  # number of parameters of the app's own model; None if trials were not run on this model
    kinds: tuple[str, ...]  # names of the planned scenarios (conditions of trials) on the model
    budget: str  # description of the number of trials, such as "fewer trials"
    result: ClaimAudit  # audit of the released model
    # Audit of the metrics that are released beside the model; None if the adversary is the server, which sees them all.
    beside: ClaimAudit | None
    leaks: tuple[SideChannelResult, ...]  # results on metrics, example counts, buffers and evaluation replies
    remarks: tuple[str, ...]  # remarks on parts that could not be used unchanged, or not observed
    buffers: int | None = None  # number of buffers (untrained tensors) of the app's model; None if it was not seen
    of_records: tuple[RecordPrivacyMention, ...] = ()  # places where the app's code mentions record-level privacy
    reported: tuple[str, ...] = ()  # names of the metrics that clients report in trials, besides the example count
    asked_for: tuple[str, ...] = ()  # names of the reported metrics that the app's own code looks up in replies
    # Parts of the mechanism or claim that could not be loaded or read, with reasons. If there are any, the verdict is
    # inconclusive.
    unseen: tuple[str, ...] = ()
    inside: "ClientInspection | None" = None  # inspection of the clients' training; None if there was none


def review(
    directory: Path,
    wishes: ReviewOptions,
    tell: Tell = lambda _: None,
    keep: Callable[[ReviewResult], None] = lambda _: None,
) -> ReviewResult:
    """Review the Flower app in a directory: find its privacy claim, test it by trials, and return the results.

    The app's code runs in this process. Raises `InputError` if the app cannot be reviewed.

    Parameters
    ----------
    directory
        Directory of the app, with its `pyproject.toml`.
    wishes
        Options of the review.
    tell
        Function that is called with messages on progress.
    keep
        Function that is called with the review so far, before the trials and after each tested distinguisher (a rule
        that tells D from D'). An interruption then loses little.
    """
    began = time.monotonic()
    read = _read(directory, wishes)
    with spared_generators(), no_news_from_flower():
        return _planned(read, wishes, began, tell, keep).carried_out()


@dataclass(frozen=True)
class _ParsedApp:
    """A Flower app with its strategy, claim and model, and the audited system for its trials."""

    app: AppDescription  # description of the app by its `pyproject.toml`
    caught: CapturedStrategy  # the app's strategy with its arguments and client mods
    stand_ins: StandIns  # import finder with the names of packages that are not installed
    code: tuple[RecordPrivacyMention, ...]  # places where the code mentions record-level privacy
    inside: "ClientInspection | None"  # inspection of the clients' training; None if there was none
    stated: StatedAppClaim  # privacy claim of the app or the reviewer, for one round
    claim: StatedClaim  # claim to test: the stated one, or epsilon `REFERENCE` if nothing is claimed
    nodes: int  # number of clients that the strategy sees
    own: Arrays | None  # tensors of the app's own model, keyed by name; None if the model was not seen
    start: StrategyStartCall  # the strategy, and the arguments of its `start` without the initial model
    stage: TrialStrategyFactory  # factory of the strategy for trials
    system: AuditedSystem  # the system that the trials audit
    on_clients: tuple[str, ...]  # remarks on the number of clients
    on_model: tuple[str, ...]  # remarks on the model


def _read(directory: Path, wishes: ReviewOptions) -> _ParsedApp:
    """Load an app and its claim, inspect its clients' training if they use Opacus, and prepare the audited system.

    `directory` holds the app with its `pyproject.toml`. `wishes` are the options of the review, with the reviewer's
    claim if there is one.
    """
    stand_ins = StandIns(directory)
    sys.meta_path.append(stand_ins)
    app = read_app(directory)
    named = wishes.nodes or app.nodes
    caught = catch(app, named or USUAL_NODES, stand_ins)
    # One round is enough to detect releases without noise, and to measure the duration of a round.
    stated = _stated(caught, wishes, rounds=1)
    code = of_records(app.directory)
    inside = _look_inside(app, caught, named or USUAL_NODES, wishes, code)
    claim = stated.claim or StatedClaim(wishes.adjacency or Adjacency.ADD_REMOVE_CLIENT, epsilon=REFERENCE)
    nodes, on_clients = planning.nodes_of(caught.start.strategy, named, stated.clients)
    own, on_model = planning.own_model(caught.start)
    start = replace(caught.start, arguments={k: v for k, v in caught.start.arguments.items() if k != "initial_arrays"})
    stage = TrialStrategyFactory(start, nodes, max(2, planning.asked_of(start.strategy, nodes)))
    weights = [one.weighted_by_key for one in layers_of(start.strategy) if hasattr(one, "weighted_by_key")]
    system = AuditedSystem(
        stage.made, caught.mods, None, stage.seats, stated.norm, wishes.is_clipped, stated.observer, own,
        *weights[-1:],
    )  # fmt: skip
    return _ParsedApp(
        app, caught, stand_ins, code, inside, stated, claim, nodes, own, start, stage, system, tuple(on_clients),
        tuple(on_model),
    )  # fmt: skip


def _planned(
    read: _ParsedApp, wishes: ReviewOptions, began: float, tell: Tell, keep: Callable[[ReviewResult], None]
) -> "_PlannedReview":
    """Measure by a dry run how long a trial takes, and return the review with its planned trials.

    Parameters
    ----------
    read
        The app with its strategy and claim.
    wishes
        Options of the review, with its time limit.
    began
        Monotonic time, in seconds, at which the review began.
    tell
        Function that is called with messages on progress.
    keep
        Function that is called with the review so far.
    """
    system, slow, quick, has_written, unoffered = rehearsed(read.system, read.claim)
    asked, stated, claim = dict(read.stage.most), read.stated, read.claim
    kinds = planning.telling_kinds(kinds_of(system, claim), read.own, has_claim=stated.claim is not None)
    left = (_OF_MODEL * wishes.seconds - (time.monotonic() - began)) * wishes.processes
    # A claimed noise multiplier can be composed over rounds. A reviewer's claim already covers several rounds.
    says_noise = stated.claim is not None and stated.claim.noise_multiplier is not None
    is_composed = says_noise or (stated.claim is not None and stated.is_of_reviewer)
    wanted = (wishes.rounds or min(read.caught.rounds, planning.USUAL_ROUNDS)) if is_composed else 1
    is_free, is_quick = wishes.rounds is None, wishes.is_quick or stated.claim is None
    plan = planning.plan_of(kinds, claim, slow, quick, left, wanted, is_free, is_quick)
    claim = replace(claim, rounds=plan.rounds)
    names = [kind.name for kind in plan.kinds]
    if plan.rounds > 1:
        composed = planning.telling_kinds(kinds_of(system, claim), read.own, has_claim=True)
        names += [kind.name for kind in composed if kind not in kinds]
    about = [kind for aside, kind in NUMBERS.items() if asked["evaluate"] or aside is not SideChannel.EVALUATION]
    names_found, unseen = _claimed(read.caught, stated, read.app, read.code)
    of_code = () if read.inside is not None and read.inside.assessment is not None else names_found
    remarks = tuple(_remarks(of_code, unoffered, read.stand_ins, has_written))
    return _PlannedReview(
        read, wishes, began, tell, keep, system, claim, plan, tuple(names), tuple(about), asked, names_found, unseen,
        remarks,
    )  # fmt: skip


@dataclass(frozen=True)
class _PlannedReview:
    """A review with planned trials, which `carried_out` runs."""

    read: _ParsedApp  # the loaded app with its claim
    wishes: ReviewOptions  # the reviewer's options
    began: float  # start of the review on the monotonic clock, in seconds
    tell: Tell  # function that is called with messages on progress
    keep: Callable[[ReviewResult], None]  # function that is called with the review so far
    system: AuditedSystem  # the system that the trials audit, with the metrics that clients report
    claim: StatedClaim  # claim to test, for the rounds of one trial
    plan: planning.ReviewPlan  # scenarios, rounds and number of trials
    names: tuple[str, ...]  # names of the scenarios on the model
    about: tuple[str, ...]  # names of the scenarios on side channels
    asked: dict[str, int]  # most clients that the strategy asks in a round, for `train` and `evaluate`
    names_found: tuple[RecordPrivacyMention, ...]  # places where the app mentions record-level privacy
    unseen: tuple[str, ...]  # parts of the mechanism or claim that could not be loaded or read, with reasons
    remarks: tuple[str, ...]  # remarks on parts that could not be loaded, used or observed

    @property
    def is_beside(self) -> bool:
        """Whether metrics and other side channels are tested: only if the adversary is a client, not the server."""
        return self.read.stated.observer is Observer.CLIENT

    @property
    def of_numbers(self) -> StatedClaim:
        """Claim for testing metrics and other side channels: the app's claim, with epsilon at most 3 (`REFERENCE`)."""
        epsilon = self.claim.limits[0].epsilon if self.claim.epsilon is None else self.claim.epsilon
        return StatedClaim(self.claim.adjacency, epsilon=min(epsilon, REFERENCE), delta=self.claim.delta)

    def carried_out(self) -> ReviewResult:
        """Run all planned trials of the app, and return the review.

        The first trials test the model, the next ones test it with the fewest clients with which the app starts. The
        last ones test metrics and other side channels, if the adversary is a client.
        """
        waiting = _not_begun(self.of_numbers, self.about) if self.is_beside else None
        self.keep(self.found(_not_begun(self.claim, self.names), waiting))
        result = self.held(
            self.system, self.claim, self.names, self.plan.budget, _OF_MODEL, lambda came: self.found(came, waiting)
        )
        early = self._early(lambda _: self.found(result, waiting))
        if not self.is_beside:
            return self.found(result, None, early)
        beside = self.held(
            self.system,
            self.of_numbers,
            self.about,
            fewest(self.of_numbers),
            _OF_NUMBERS,
            lambda came: self.found(result, came, early),
        )
        return self.found(result, beside, early)

    def _early(self, so_far: Callable[[ClaimAudit], ReviewResult]) -> tuple[str, ...]:
        """Run trials with the smallest number of clients that the app starts with, and return one remark on them.

        Nothing is run, and the result is empty, if the app then asks as many clients as its noise is calibrated for.
        `so_far` makes a review of an intermediate result, which is then passed to the caller of the review.
        """
        read = self.read
        early = planning.early_of(read.start.strategy, read.stated.clients)
        if early is None:
            return ()
        few = TrialStrategyFactory(read.start, early[0], max(2, early[1]))
        plain = [kind.name for kind in kinds_of(self.system, self.claim) if kind.name in ("removed", "opposite")]
        system = replace(self.system, strategy=few.made, clients=few.seats)
        came = self.held(system, self.claim, plain, fewest(self.claim), _OF_EARLY, so_far)
        return (_early_words(*early, read.stated.clients, came),)

    def held(
        self,
        system: AuditedSystem,
        claim: StatedClaim,
        names: Sequence[str],
        budget: TrialBudget,
        share: float,
        so_far: Callable[[ClaimAudit], ReviewResult],
    ) -> ClaimAudit:
        """Test a system's claim in the named scenarios (conditions of trials) and return the result.

        The trials end at a share of the review's time limit. `so_far` makes a review of an intermediate result, which
        is then passed to the caller of the review.
        """
        seconds = max(1.0, share * self.wishes.seconds - (time.monotonic() - self.began))
        return audit_system(
            system, claim, budget=budget, seed=self.wishes.seed, processes=self.wishes.processes, include=names,
            seconds=seconds, tell=self.tell, keep=lambda result: self.keep(so_far(result)),
        )  # fmt: skip

    def found(self, result: ClaimAudit, beside: ClaimAudit | None, early: tuple[str, ...] = ()) -> ReviewResult:
        """Return the review so far, from the audits that are finished or still running.

        Parameters
        ----------
        result
            Audit of the model.
        beside
            Audit of metrics and other side channels; None if they are not tested.
        early
            Remarks on the trials with the fewest clients with which the app starts.
        """
        read, caught, stated = self.read, self.read.caught, self.read.stated
        results = [result] if beside is None else [result, beside]
        planned = [*self.names, *(self.about if self.is_beside else ())]
        of_server = _verdict(stated, result, caught.rounds, self.plan.rounds, self.unseen, self.names_found)
        return ReviewResult(
            app=read.app.name,
            stated=stated,
            verdict=_with_clients(of_server, stated, read.inside),
            rounds=caught.rounds,
            played_rounds=self.plan.rounds,
            nodes=read.nodes,
            asked=self.asked,
            parameters=None if read.own is None else template_of(read.own).size,
            kinds=self.names,
            budget=self.plan.words,
            result=result,
            beside=beside,
            leaks=planning.leaks(results, planned),
            remarks=(*caught.remarks, *read.on_clients, *early, *read.on_model, *self.remarks),
            buffers=None if read.own is None else planning.buffers_of(read.own),
            of_records=self.names_found,
            reported=(LOSS, *self.system.metrics),
            asked_for=self.system.metrics,
            unseen=self.unseen,
            inside=read.inside,
        )


def _not_begun(claim: StatedClaim, kinds: Sequence[str]) -> ClaimAudit:
    """Return the inconclusive audit of a claim for which no trial has been run yet.

    `kinds` holds the names of the scenarios (conditions of trials) that are planned.
    """
    return ClaimAudit(claim, Verdict.INCONCLUSIVE, (), (), 0, unplayed=tuple(kinds))


def _claimed(
    caught: CapturedStrategy, stated: StatedAppClaim, app: AppDescription, found: tuple[RecordPrivacyMention, ...]
) -> tuple[tuple[RecordPrivacyMention, ...], tuple[str, ...]]:
    """Return all mentions of record-level privacy in an app, and the parts of its claim that were not observed.

    With a claim, the mentions are those in the code (`found`), unchanged. Without a claim, the app's privacy settings
    are considered too: if the code has mentions, the settings are further mentions, and otherwise unobserved parts.

    Parameters
    ----------
    caught
        The app's strategy as captured at its start, with the parts that were not observed.
    stated
        The claim of the app or the reviewer, if there is one, and the parts of it that could not be read.
    app
        The app with its configuration.
    found
        Mentions of record-level privacy in the app's code.
    """
    if stated.claim is not None:
        return found, caught.unseen
    if found:
        return (*found, *of_settings(app.directory / "pyproject.toml", app.config)), (*caught.unseen, *stated.unseen)
    return (), (*caught.unseen, *stated.unseen, *filter(None, [named_in(app.config)]))


def _remarks(
    found: tuple[RecordPrivacyMention, ...], unoffered: Sequence[str], stand_ins: StandIns, has_written: bool
) -> Iterator[str]:
    """Yield remarks on an app for the report of its review.

    Parameters
    ----------
    found
        Mentions of record-level privacy in the app's code.
    unoffered
        Names of metrics that the app expects in clients' replies, and that the trials leave out.
    stand_ins
        Replacements of packages that the app imports and that are not installed.
    has_written
        Whether the app writes files while it trains.
    """
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
    found: tuple[RecordPrivacyMention, ...] = (),
) -> Verdict:
    """Return the verdict on the claim about clients; inconclusive if parts of the app were not observed.

    The verdict is also inconclusive if the trials do not support a reviewer's epsilon for the whole training. Without a
    claim, the verdict is that there is no guarantee, or, if the code mentions record-level privacy, that the guarantee
    is not audited.

    Parameters
    ----------
    stated
        Claim of the app or the reviewer, if there is one.
    result
        Audit of the claim by trials.
    rounds
        Number of rounds of the app's training.
    played
        Number of rounds of a trial.
    unseen
        Parts of the app that were not observed.
    found
        Mentions of record-level privacy in the app.
    """
    # Unobserved parts may add noise, or reveal more.
    if unseen:
        return Verdict.INCONCLUSIVE
    if stated.claim is None:
        return Verdict.NOT_AUDITED if found else Verdict.NO_GUARANTEE
    is_doubted = result.verdict is Verdict.CONSISTENT and training_doubt(stated, rounds, played) != ""
    return Verdict.INCONCLUSIVE if is_doubted else result.verdict


def _look_inside(
    app: AppDescription,
    caught: CapturedStrategy,
    nodes: int,
    wishes: ReviewOptions,
    code: tuple[RecordPrivacyMention, ...],
) -> "ClientInspection | None":
    """Inspect the training of the app's clients, and return the result; None if there is nothing to inspect.

    Clients are inspected if the app has a ClientApp, and if its code uses Opacus or the reviewer gives data for
    clients.

    Parameters
    ----------
    app
        The app under review.
    caught
        The app's strategy, as captured at its start.
    nodes
        Number of clients of the app.
    wishes
        Options of the review, with the data for clients and the time limit.
    code
        Mentions of record-level privacy in the app's code, such as that of Opacus.
    """
    if not app.client or not (wishes.client_data or any(one.what == "Opacus" for one in code)):
        return None
    # Imported here because it imports Opacus.
    from fl_audit.strategies.review.client_inspection import look_into_clients

    return look_into_clients(app, caught, nodes, wishes.client_data, _OF_CLIENTS * wishes.seconds)


def _with_clients(verdict: Verdict, stated: StatedAppClaim, inside: "ClientInspection | None") -> Verdict:
    """Return the joint verdict of the trials (`verdict`) and of the inspection of the clients' training (`inside`).

    Without an inspection, or if it could not audit, the verdict of the trials is returned. Otherwise the joint verdict
    is a violation if either verdict is. If `stated` has no claim about clients, the verdict of the inspection counts
    alone. In all other cases the joint verdict is inconclusive if either is, and else the verdict of the trials.
    """
    if inside is None or inside.assessment is None:
        return verdict
    own = inside.assessment.verdict
    if Verdict.VIOLATED in (verdict, own):
        return Verdict.VIOLATED
    if own is Verdict.NOT_AUDITED:
        return verdict
    # If nothing is claimed about clients, the verdict is on the claim about records.
    if stated.claim is None and verdict in (Verdict.NO_GUARANTEE, Verdict.NOT_AUDITED):
        return own
    return Verdict.INCONCLUSIVE if Verdict.INCONCLUSIVE in (verdict, own) else verdict


def _early_words(first: int, asked: int, made_for: int | None, came: ClaimAudit) -> str:
    """Return a remark on trials of an app that starts with fewer clients than its noise is calibrated for.

    The app starts with `first` clients and asks `asked` of them; the noise is for `made_for` clients. `came` is the
    trials' result.
    """
    said = f"it begins as soon as {first} clients are there and asks {asked} of them, and its noise is for {made_for}"
    if came.worst is None:
        return f"{said}: no trials were played with so few"
    broken = "which breaks the claim" if came.verdict is Verdict.VIOLATED else "which does not refute the claim"
    told = f"{came.worst.right / came.worst.trials:.0%} of {came.worst.trials} trials were guessed rightly"
    return f"{said}: with so few {told}, where the claim allows {came.claim.success:.0%}, {broken}"


def _stated(caught: CapturedStrategy, wishes: ReviewOptions, rounds: int) -> StatedAppClaim:
    """Return the reviewer's privacy claim if there is one, and otherwise the claim found in the app.

    Parameters
    ----------
    caught
        The app's strategy and mods, as captured at its start.
    wishes
        Options of the review, with the reviewer's claim.
    rounds
        Number of rounds that the claim covers.
    """
    adjacency = None if wishes.adjacency is None else Adjacency(wishes.adjacency)
    found = stated_by(caught.start.strategy, [one.mod for one in caught.mods], adjacency, rounds, wishes.delta)
    if wishes.epsilon is not None or wishes.noise_multiplier is not None:
        between = adjacency or Adjacency.ADD_REMOVE_CLIENT
        noise, over = wishes.noise_multiplier, wishes.noise_over
        claim = StatedClaim(between, wishes.epsilon, wishes.delta, noise, rounds, over)
        usual = stated_by(caught.start.strategy, [one.mod for one in caught.mods], None, rounds, wishes.delta)
        own = None if usual.claim is None else usual.claim.mu or usual.mu
        if own is not None and usual.claim is not None:
            # The noise is the same, but the sum may have a larger sensitivity than under the app's own adjacency.
            moves, meant = (one.neighbours.sensitivity_of_sum(1.0) for one in (claim, usual.claim))
            own *= max(1.0, moves / meant)
        found = replace(found, claim=claim, source="named by the reviewer", is_of_reviewer=True, mu=own)
    return replace(found, norm=wishes.norm or found.norm)
