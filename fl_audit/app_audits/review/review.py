"""Review of a Flower app: find its privacy claim, test it by trials of its strategy, and collect the results.

A scenario is the conditions of trials. A distinguisher is a rule that tells D from D'.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fl_audit.app_audits.black_box.audited_system import AuditedSystem
from fl_audit.app_audits.black_box.scenarios import kinds_of
from fl_audit.app_audits.black_box.system_audit import audit_system
from fl_audit.app_audits.black_box.trial_messages import Observer
from fl_audit.app_audits.black_box.trial_models import template_of
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_results import ClaimAudit, Tell, TrialBudget
from fl_audit.app_audits.console_output import no_news_from_flower
from fl_audit.app_audits.review import plan as planning
from fl_audit.app_audits.review.client_counts import too_few_clients
from fl_audit.app_audits.review.fresh_starts import StartTrace, compared_starts, trace_of_server
from fl_audit.app_audits.review.plan import probed, smallest_budget
from fl_audit.app_audits.review.privacy_mentions import weaker_than_configured
from fl_audit.app_audits.review.recorded_training import noise_doubt
from fl_audit.app_audits.review.review_result import (
    ReviewResult,
    app_remarks,
    early_words,
    joint_verdict,
    mentions_and_unseen,
    server_verdict,
)
from fl_audit.app_audits.review.reviewed_app import REFERENCE, ReviewedApp, read_reviewed_app
from fl_audit.app_audits.review.scenario_groups import NUMBERS, SideChannel, merged, side_channel_results, split
from fl_audit.app_audits.review.virtual_clients import TrialStrategyFactory
from fl_audit.app_audits.trial_options import ReviewOptions
from fl_audit.generator_states import spared_generators
from fl_audit.verdict.verdict import Verdict

_OF_MECHANISM = 0.55
_OF_MODEL = 0.75
_OF_EARLY = 0.8
_OF_NUMBERS = 0.85
"""Shares of the time limit, counted from the start of the review.

Trials of the mechanism end at `_OF_MECHANISM`, all trials on the model at `_OF_MODEL`, trials with few clients at
`_OF_EARLY`, and trials on metrics at `_OF_NUMBERS`.
"""
# Together, a true claim is refuted in at most 5 of 100 reviews.
_CONFIDENCE_OF_MECHANISM, _CONFIDENCE_OF_OTHERS, _CONFIDENCE_OF_NUMBERS = 0.96, 0.995, 0.995


def review(
    directory: Path,
    options: ReviewOptions,
    tell: Tell = lambda _: None,
    keep: Callable[[ReviewResult], None] = lambda _: None,
    traces: tuple[StartTrace, ...] = (),
) -> ReviewResult:
    """Review the Flower app in a directory: find its privacy claim, test it by trials, and return the results.

    The app's code runs in this process. Raises `InputError` if the app cannot be reviewed.

    `traces`: Of the start of the app in another fresh process, to which that in this process is compared, or of two
    starts of its clients.
    """
    began = time.monotonic()
    app = read_reviewed_app(directory, options)
    with spared_generators(), no_news_from_flower():
        return _planned(app, options, began, tell, keep, traces).carried_out()


def trace_start(directory: Path, options: ReviewOptions) -> StartTrace | None:
    """Start the app in a directory, in this fresh process, and return what it releases; None if it claims nothing."""
    app = read_reviewed_app(directory, options, is_inspected=False)
    if app.app_claim.claim is None:
        return None
    if app.app_claim.observer is Observer.SERVER:
        return StartTrace(awaits_clients=True)
    with spared_generators(), no_news_from_flower():
        return _traced(app, probed(app.system, app.claim).system)


def _traced(app: ReviewedApp, system: AuditedSystem) -> StartTrace:
    assert app.captured.states is not None
    return trace_of_server(
        app.factory.start, app.captured.states, app.factory.nodes, system, app.claim, app.captured.rounds
    )


def _planned(
    app: ReviewedApp,
    options: ReviewOptions,
    began: float,
    tell: Tell,
    keep: Callable[[ReviewResult], None],
    traces: tuple[StartTrace, ...],
) -> "_PlannedReview":
    """Measure in a dry run how long a trial takes, and plan trials that fit into the time limit.

    The time limit counts from `began`, a time of the monotonic clock in seconds.
    """
    probe = probed(app.system, app.claim)
    system, app_claim, claim = probe.system, app.app_claim, app.claim
    if len(traces) == 1 and app_claim.claim is not None:
        traces = (_traced(app, system), *traces)
    starts = compared_starts(app_claim, traces)
    largest_requests = dict(app.factory.largest_requests)
    kinds = planning.relevant_scenarios(kinds_of(system, claim), system.model, has_claim=app_claim.claim is not None)
    seconds_left = (_OF_MODEL * options.seconds - (time.monotonic() - began)) * options.processes
    # A claimed noise multiplier can be composed over rounds. A reviewer's claim already covers several rounds.
    says_noise = app_claim.claim is not None and app_claim.claim.noise_multiplier is not None
    is_composed = says_noise or (app_claim.claim is not None and app_claim.is_of_reviewer)
    wanted_rounds = (options.rounds or min(app.captured.rounds, planning.USUAL_ROUNDS)) if is_composed else 1
    is_free = options.rounds is None
    is_quick = options.is_quick or app_claim.claim is None
    plan = planning.plan_of(
        kinds, claim, probe.own_seconds, probe.seconds, seconds_left, wanted_rounds, is_free, is_quick
    )
    claim = replace(claim, rounds=plan.rounds)
    names = [kind.name for kind in plan.kinds]
    if plan.rounds > 1:
        composed = planning.relevant_scenarios(kinds_of(system, claim), system.model, has_claim=True)
        names += [kind.name for kind in composed if kind not in kinds]
    side_channel_names = [
        kind for aside, kind in NUMBERS.items() if largest_requests["evaluate"] or aside is not SideChannel.EVALUATION
    ]
    mentions, unseen = mentions_and_unseen(app.captured, app_claim, app.description, app.mentions)
    late = _late_noise(app, system, plan.rounds)
    of_code = () if app.inside is not None else mentions
    remarks = app_remarks(of_code, probe.unoffered, app.stand_ins, probe.writes_files)
    weaker = weaker_than_configured(app_claim, app.description.config, app.captured.rounds)
    before_trials = ReviewResult(
        app=app.description.name,
        app_claim=app_claim,
        verdict=Verdict.INCONCLUSIVE,
        rounds=app.captured.rounds,
        played_rounds=plan.rounds,
        nodes=app.factory.nodes,
        asked=largest_requests,
        parameters=None if system.model is None else template_of(system.model).size,
        kinds=tuple(names),
        budget=plan.words,
        result=_not_begun(claim, names),
        beside=None,
        leaks=(),
        remarks=(*weaker, *app.remarks, *remarks),
        buffers=None if system.model is None else planning.buffer_count(system.model),
        of_records=mentions,
        weaker=weaker,
        unseen=(*unseen, *starts.unseen, *late),
        inside=app.inside,
        inside_unseen=app.inside_unseen,
        count_fault=app.count_fault,
        starts=starts,
    )
    return _PlannedReview(
        app, options, began, tell, keep, system, claim, plan.budget, tuple(side_channel_names), before_trials
    )


def _late_noise(app: ReviewedApp, system: AuditedSystem, played: int) -> tuple[str, ...]:
    """Return a phrase on rounds without noise that trials do not play; () if there are none, or clients add it."""
    if app.app_claim.claim is None or app.app_claim.observer is Observer.SERVER:
        return ()
    return noise_doubt(app.factory.start, app.factory.nodes, system, app.claim, app.captured.rounds, played)


@dataclass(frozen=True)
class _PlannedReview:
    """A review with planned trials, which `carried_out` runs."""

    app: ReviewedApp  # the loaded app with its claim
    options: ReviewOptions  # the reviewer's options
    began: float  # start of the review on the monotonic clock, in seconds
    tell: Tell  # function that is called with messages on progress
    keep: Callable[[ReviewResult], None]  # function that is called with the review so far
    system: AuditedSystem  # the system that the trials audit, with the metrics that clients report
    claim: StatedClaim  # claim to test, for the rounds of one trial
    budget: TrialBudget  # number of trials in each stage
    side_channel_names: tuple[str, ...]  # names of the scenarios on side channels
    before_trials: ReviewResult  # the review before its first trial, with the names of the scenarios on the model

    @property
    def tests_side_channels(self) -> bool:
        """Whether the review tests side channels; it does so only if the adversary is a client."""
        return self.app.app_claim.observer is Observer.CLIENT

    @property
    def side_channel_claim(self) -> StatedClaim:
        """Claim against which side channels are tested: the app's claim, with an epsilon of at most 3.

        If the app claims a noise multiplier, epsilon is that of the first inequality which the claim implies.
        """
        epsilon = self.claim.limits[0].epsilon if self.claim.epsilon is None else self.claim.epsilon
        return StatedClaim(self.claim.adjacency, epsilon=min(epsilon, REFERENCE), delta=self.claim.delta)

    def carried_out(self) -> ReviewResult:
        """Run all planned trials and return the review.

        There are three groups of trials. The first group tests the model. The second group tests it with the smallest
        number of clients with which the app starts. The third group tests side channels.
        """
        waiting = _not_begun(self.side_channel_claim, self.side_channel_names) if self.tests_side_channels else None
        self.keep(self.review_so_far(self.before_trials.result, waiting))
        result = self._audit_of_model(waiting)
        early = self._early(lambda _: self.review_so_far(result, waiting))
        if not self.tests_side_channels:
            return self.review_so_far(result, None, early)
        beside = self.run_claim_audit(
            self.system,
            self.side_channel_claim,
            self.side_channel_names,
            smallest_budget(self.side_channel_claim),
            _OF_NUMBERS,
            lambda came: self.review_so_far(result, came, early),
            _CONFIDENCE_OF_NUMBERS,
        )
        return self.review_so_far(result, beside, early)

    def _audit_of_model(self, claim_audit: ClaimAudit | None) -> ClaimAudit:
        """Test the model: first in the scenarios of the mechanism itself, then in all others.

        `claim_audit` is the audit of side channels, which has not begun, or None without one.
        """
        of_mechanism, other_names = split(self.before_trials.kinds)
        later = _not_begun(self.claim, other_names)
        if not of_mechanism or not other_names:
            return self.run_claim_audit(
                self.system,
                self.claim,
                self.before_trials.kinds,
                self.budget,
                _OF_MODEL,
                lambda came: self.review_so_far(came, claim_audit),
                _CONFIDENCE_OF_MECHANISM,
            )
        result = self.run_claim_audit(
            self.system,
            self.claim,
            of_mechanism,
            self.budget,
            _OF_MECHANISM,
            lambda came: self.review_so_far(merged(came, later), claim_audit),
            _CONFIDENCE_OF_MECHANISM,
        )
        audit_of_rest = self.run_claim_audit(
            self.system,
            self.claim,
            other_names,
            smallest_budget(self.claim, len(other_names)),
            _OF_MODEL,
            lambda came: self.review_so_far(merged(result, came), claim_audit),
            _CONFIDENCE_OF_OTHERS,
        )
        return merged(result, audit_of_rest)

    def _early(self, so_far: Callable[[ClaimAudit], ReviewResult]) -> tuple[str, ...]:
        """Run trials with fewer clients than the app is made for, and return one remark on their results.

        Some apps start too early, with too few clients, although their noise is calibrated for more clients. The trials
        show whether this breaks the claim. Nothing is run, and there is no remark, if the app cannot start too early.
        """
        app = self.app
        early = too_few_clients(app.factory.start.strategy, app.app_claim.clients)
        if early is None:
            return ()
        factory = TrialStrategyFactory(app.factory.start, early[0], max(2, early[1]))
        plain = [kind.name for kind in kinds_of(self.system, self.claim) if kind.name in ("removed", "opposite")]
        system = replace(self.system, strategy=factory.new_strategy, clients=factory.seats)
        came = self.run_claim_audit(system, self.claim, plain, smallest_budget(self.claim), _OF_EARLY, so_far)
        return (early_words(*early, app.app_claim.clients, came),)

    def run_claim_audit(
        self,
        system: AuditedSystem,
        claim: StatedClaim,
        names: Sequence[str],
        budget: TrialBudget,
        share: float,
        so_far: Callable[[ClaimAudit], ReviewResult],
        confidence: float = 0.95,
    ) -> ClaimAudit:
        """Test a claim about a system by trials in the scenarios `names`.

        The test ends when the fraction `share` of the time limit of the whole review has passed. After each tested
        distinguisher, `so_far` converts the intermediate result to a review, which is stored.
        """
        seconds = max(1.0, share * self.options.seconds - (time.monotonic() - self.began))
        return audit_system(
            system,
            claim,
            budget=budget,
            confidence=confidence,
            seed=self.options.seed,
            processes=self.options.processes,
            include=names,
            seconds=seconds,
            tell=self.tell,
            keep=lambda result: self.keep(so_far(result)),
        )

    def review_so_far(
        self, claim_audit: ClaimAudit, beside: ClaimAudit | None, early: tuple[str, ...] = ()
    ) -> ReviewResult:
        """Return the review so far, from audits that are finished or still running.

        `claim_audit` is the audit of the released model. `beside` is the audit of side channels, or None without one.
        `early` holds remarks on trials with the number of clients with which the app starts.
        """
        before, app_claim = self.before_trials, self.app.app_claim
        results = [claim_audit] if beside is None else [claim_audit, beside]
        planned = [*before.kinds, *(self.side_channel_names if self.tests_side_channels else ())]
        of_server = server_verdict(
            app_claim, claim_audit, before.rounds, before.played_rounds, before.unseen, before.of_records, beside
        )
        return replace(
            before,
            verdict=Verdict.VIOLATED if before.starts.repeats else joint_verdict(of_server, app_claim, before.inside),
            result=claim_audit,
            beside=beside,
            leaks=side_channel_results(results, planned),
            early=early,
        )


def _not_begun(claim: StatedClaim, kinds: Sequence[str]) -> ClaimAudit:
    """Return the inconclusive audit of a claim before its first trial."""
    return ClaimAudit(claim, Verdict.INCONCLUSIVE, (), (), 0, unplayed=tuple(kinds))
