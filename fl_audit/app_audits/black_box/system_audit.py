"""Black-box audit of a strategy: it tests a privacy claim by thousands of short trials in several processes.

A scenario is the conditions of trials. A distinguisher is a rule that tells trials with the target (D) from those
without it (D').
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fl_audit.adjacency import Relation, Unit
from fl_audit.app_audits.black_box.audited_system import AuditedSystem
from fl_audit.app_audits.black_box.black_box_trial import model_of, sketch_of
from fl_audit.app_audits.black_box.later_rounds import late_rounds_without_noise
from fl_audit.app_audits.black_box.recorder import errors_in, evidence_names
from fl_audit.app_audits.black_box.scenario import FEW, MANY, ModelKind, OtherContributions, Scenario
from fl_audit.app_audits.black_box.scenarios import BY_NAME, ZERO_PROBE, ZERO_PROBE_ON_OWN
from fl_audit.app_audits.black_box.trial_executor import ChunkTrials, TrialChunk, TrialExecutor, target_places
from fl_audit.app_audits.black_box.worker_pool import WorkerPool
from fl_audit.app_audits.black_box.working_copy import outside_words
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_procedure import audit_claim
from fl_audit.app_audits.claim_audit.claim_audit_results import (
    CHUNK,
    FEWEST_OF_EACH,
    ClaimAudit,
    OutOfTimeError,
    ScenarioTrialsSummary,
    Tell,
    TrialBudget,
)
from fl_audit.app_audits.claim_audit.transcript import Transcript, Transcripts, stacked
from fl_audit.app_audits.console_output import no_news_from_flower, say
from fl_audit.errors import require
from fl_audit.verdict.verdict import Verdict

_OWN_MODEL = (
    "Trials of a strategy have small models of their own: one that loads what is released into its app's model refuses "
    "these. Let the factory return AuditedSystem(make_strategy, model=initial_arrays), with the tensors of that model "
    "by name; if it belongs to a Flower app with a pyproject.toml, fl-audit review plays it on that model."
)
"""Remedy that the report shows if the strategy refused every ordinary trial."""


def audit_system(
    system: AuditedSystem,
    claim: StatedClaim,
    *,
    budget: TrialBudget | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    processes: int = 1,
    exclude: Sequence[str] = (),
    include: Sequence[str] | None = None,
    seconds: float = math.inf,
    tell: Tell = lambda _: None,
    keep: Callable[[ClaimAudit], None] = lambda _: None,
    later_rounds: int = 0,
) -> ClaimAudit:
    """Test the privacy claim of a strategy by thousands of short trials with the target (D) and without it (D').

    A trial that ends its worker process counts as refused by the strategy. Raises `InputError` if a number is out of
    range.

    Parameters
    ----------
    system
        Strategy under audit, with the mods and settings of its clients.
    claim
        Privacy claim of the strategy.
    budget
        Number of trials in each stage of the audit; None for the default numbers.
    confidence
        Probability that a true claim is not reported as violated, above 0.5 and below 1.
    seed
        Seed of the trials, also of the global generators of Python, numpy and torch, from which an app draws its noise.
    processes
        Number of processes that run trials at the same time, at least 1.
    exclude
        Names of scenarios that are left out because the claim does not cover them.
    include
        Names of the only scenarios to run; None for all that are relevant to the claim.
    seconds
        Time limit for the trials in seconds, above 0. At most half of it is spent on the search for distinguishers.
    tell
        Function that is called with messages on progress.
    keep
        Function that is called with the result so far after each tested distinguisher.
    later_rounds
        Number of rounds in which a few trials look for rounds without noise after those of the claim, unless the claim
        is violated; 0 for none. If there are any, the result is not consistent.
    """
    kinds = [kind for kind in kinds_of(system, claim) if not {kind.name, kind.plain_name} & set(exclude)]
    kinds = [kind for kind in kinds if include is None or kind.name in include]
    require(len(kinds) > 0, "no scenario is left that says something about this claim")
    names = [kind.name for kind in kinds]
    malformed = frozenset(kind.name for kind in kinds if kind.is_malformed)
    log = _TrialLog()
    began = time.monotonic()
    player = TrialExecutor(system, claim, seed, target_places(kinds, system, seed))
    with no_news_from_flower(), player, WorkerPool(player.play, player.lost, processes, say) as players:
        bears_zero = claim.neighbours.unit is not Unit.CLIENT or _bears_zero(system, players, began + seconds / 2)

        def play(name: str, first: int, count: int) -> tuple[Transcripts, NDArray[np.bool_]]:
            # Trials from number 0 on search for distinguishers; trials that test them have larger numbers.
            until = began + (seconds if first else seconds / 2)
            if time.monotonic() > until:
                raise OutOfTimeError
            chunks = range(first // CHUNK, (first + count) // CHUNK)
            came = players.done([TrialChunk(name, chunk, bears_zero) for chunk in chunks], until)
            transcripts = [trial for trials, _, _ in came.values() for trial in trials]
            present = np.concatenate([np.zeros(0, dtype=bool), *(bits for _, bits, _ in came.values())])
            # The time limit, and not the content of trials, decides which are missing, so the rest is unbiased.
            if len(transcripts) < count and min(np.sum(present), np.sum(~present)) < FEWEST_OF_EACH:
                raise OutOfTimeError
            log.outside.update(path for _, _, paths in came.values() for path in paths)
            numbers = log.add(name, first, transcripts)
            model = model_of(system, BY_NAME[name])
            reduced = sketch_of(model)
            return stacked(transcripts, model.tensors if reduced is None else reduced.columns, numbers), present

        result = audit_claim(claim, names, play, malformed, log.last_words.__getitem__, budget, confidence, tell, keep)
        if later_rounds > claim.rounds and result.verdict is not Verdict.VIOLATED:
            longer = TrialChunk(_plainest(system, claim), 1, bears_zero, later_rounds)
            result = _with_later_rounds(result, players, longer, began + seconds)
    if log.outside:
        say(outside_words(sorted(log.outside)))
    # Of malformed inputs nothing is known by this: a strategy may refuse them.
    is_unplayed = bool(result.refused) and not result.tests and system.model is None
    return replace(result, asked=log.asked, hindrance=_OWN_MODEL if is_unplayed else _hindrance(log.failed))


def _bears_zero(system: AuditedSystem, players: "WorkerPool[TrialChunk, ChunkTrials]", until: float) -> bool:
    """Return whether trials in which the target sends an update of exactly zero end as other trials do."""
    probe = ZERO_PROBE if system.model is None else ZERO_PROBE_ON_OWN
    came = players.done([TrialChunk(probe.name, 0)], until)
    ends_well = [
        (bool(bit), _ends_well(trial))
        for trials, present, _ in came.values()
        for trial, bit in zip(trials, present, strict=True)
    ]
    of_zero, of_others = ([is_well for bit, is_well in ends_well if bit is side] for side in (False, True))
    return any(of_zero) or not any(of_others)


def _plainest(system: AuditedSystem, claim: StatedClaim) -> str:
    """Return the name of the plainest scenario for a claim, on the system's own model if there is one."""
    plain = "removed" if claim.neighbours.relation is Relation.ADD_REMOVE else "opposite"
    return plain if system.model is None else f"{plain}, own model"


def _with_later_rounds(
    claim_audit: ClaimAudit, players: "WorkerPool[TrialChunk, ChunkTrials]", chunk: TrialChunk, until: float
) -> ClaimAudit:
    """Return the result with the rounds after those of the claim in which the strategy releases without noise.

    `chunk`: A chunk of trials that play more rounds than those of the claim.
    """
    came = players.done([chunk], until).get(0)
    if came is None or len(came[0]) < CHUNK:
        return claim_audit
    bare = late_rounds_without_noise(came[0], came[1], claim_audit.claim.rounds)
    is_open = bool(bare) and claim_audit.verdict is Verdict.CONSISTENT
    return replace(claim_audit, bare_rounds=bare, verdict=Verdict.INCONCLUSIVE if is_open else claim_audit.verdict)


def _ends_well(transcript: Transcript) -> bool:
    """Return whether a trial ended without an error, and released finite numbers alone."""
    return transcript.refusal is None and not errors_in(transcript) and bool(np.all(np.isfinite(transcript.steps)))


@dataclass
class _TrialLog:
    """Facts about all trials of an audit so far, besides their transcripts."""

    asked: dict[str, ScenarioTrialsSummary] = field(default_factory=dict)  # number of trials and names, by scenario
    failed: Counter[str] = field(default_factory=Counter)  # number of trials with each error message of clients
    outside: set[str] = field(default_factory=set)  # paths outside of the working copies to which trials wrote
    last_words: dict[str, str] = field(default_factory=dict)  # the strategy's last refusal, by scenario

    def add(self, name: str, first: int, transcripts: Sequence[Transcript]) -> tuple[str, ...]:
        """Add the transcripts `transcripts` of a scenario's trials, whose numbers begin with `first`.

        Returns the names of recorded numbers from which D and D' could be told apart.
        """
        summary = self.asked.get(name, ScenarioTrialsSummary())
        numbers = evidence_names(transcripts)
        trials = max(summary.trials, first + len(transcripts))
        self.asked[name] = ScenarioTrialsSummary(trials, tuple(dict.fromkeys((*summary.names, *numbers))))
        self.failed.update(error for transcript in transcripts for error in errors_in(transcript)[:1])
        self.last_words.update(
            (name, transcript.refusal) for transcript in transcripts if transcript.refusal is not None
        )
        return numbers


def _hindrance(failed: Counter[str]) -> str:
    """Return a sentence with the most frequent error of clients; empty without errors."""
    if not failed:
        return ""
    return (
        f"Clients replied with errors, which are no evidence; the most frequent one was: {failed.most_common(1)[0][0]}."
    )


def kinds_of(system: AuditedSystem, claim: StatedClaim) -> tuple[Scenario, ...]:
    """Return the scenarios that can test a claim about a system, in the order of `BY_NAME`.

    Parameters
    ----------
    system
        Strategy under audit with its clients; its settings exclude some scenarios.
    claim
        Privacy claim; its unit, relation and number of rounds exclude some scenarios.
    """
    # The system's own number of clients, and few and many if the strategy can be made for them.
    sizes = {None, *({FEW, MANY} - {system.clients} if system.takes_client_count else ())}
    neighbours = claim.neighbours
    return tuple(
        kind
        for kind in BY_NAME.values()
        if kind.relation in (None, neighbours.relation)
        and neighbours.unit in kind.units
        and claim.rounds >= kind.least_rounds
        and (system.is_clipped or not kind.is_beyond)
        and kind.stage.clients in sizes
        and (system.model is not None or kind.model is not ModelKind.OWN)
        # Environments that vary other clients' updates are only for claims about clients.
        and (neighbours.unit is Unit.CLIENT or kind.stage.others is OtherContributions.IDENTICAL)
    )
