"""Black-box audit of a strategy: it tests a privacy claim by thousands of short trials in several processes.

A scenario is the conditions of trials. A distinguisher is a rule that tells trials with the target (D) from those
without it (D').
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fl_audit.adjacency import Relation, Unit
from fl_audit.app_audits.black_box.asked_metrics import LookupTrial, find_asked_metrics
from fl_audit.app_audits.black_box.audited_system import AuditedSystem
from fl_audit.app_audits.black_box.black_box_trial import LOSS, model_of, sketch_of
from fl_audit.app_audits.black_box.later_rounds import late_rounds_without_noise
from fl_audit.app_audits.black_box.recorder import errors_in, evidence_names
from fl_audit.app_audits.black_box.scenarios import BY_NAME, ZERO_PROBE, ZERO_PROBE_ON_OWN, kinds_of
from fl_audit.app_audits.black_box.trial_chunks import ChunkTrials, TrialChunk, TrialExecutor, target_places
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
from fl_audit.verdict.verdict import Verdict, with_doubt

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
        asked = _asked_metrics(system, claim, players, began + seconds / 2)
        is_of_clients = claim.neighbours.unit is Unit.CLIENT
        bears_zero = not is_of_clients or _bears_zero(system, players, began + seconds / 2, asked)
        of_trials_alone = partial(_is_of_trials_alone, replace(system, asked=asked), claim)

        def play(name: str, first: int, count: int) -> tuple[Transcripts, NDArray[np.bool_]]:
            # Trials from number 0 on search for distinguishers; trials that test them have larger numbers.
            until = began + (seconds if first else seconds / 2)
            if time.monotonic() > until:
                raise OutOfTimeError
            chunks = range(first // CHUNK, (first + count) // CHUNK)
            tasks = [TrialChunk(name, chunk, bears_zero, asked=asked) for chunk in chunks]
            played = players.done(tasks, until).values()
            transcripts = [transcript for chunk_trials in played for transcript in chunk_trials.transcripts]
            present = np.concatenate([np.zeros(0, dtype=bool), *(chunk_trials.present for chunk_trials in played)])
            # The time limit, and not the content of trials, decides which are missing, so the rest is unbiased.
            if len(transcripts) < count and min(np.sum(present), np.sum(~present)) < FEWEST_OF_EACH:
                raise OutOfTimeError
            log.outside.update(path for chunk_trials in played for path in chunk_trials.outside)
            numbers = log.add(name, first, transcripts)
            model = model_of(system, BY_NAME[name])
            reduced = sketch_of(model)
            return stacked(transcripts, model.tensors if reduced is None else reduced.columns, numbers), present

        last_words = log.last_words.__getitem__
        result = audit_claim(claim, names, play, malformed, last_words, budget, confidence, tell, keep, of_trials_alone)
        if later_rounds > claim.rounds and result.verdict is not Verdict.VIOLATED:
            longer = TrialChunk(_plainest(system, claim), 1, bears_zero, later_rounds, asked)
            result = _with_later_rounds(result, players, longer, began + seconds)
    if log.outside:
        say(outside_words(sorted(log.outside)))
    # Of malformed inputs nothing is known by this: a strategy may refuse them.
    is_unplayed = bool(result.refused) and not result.tests and system.model is None
    hindrance = _OWN_MODEL if is_unplayed else _hindrance(log.failed)
    return replace(result, trial_summaries=log.trial_summaries, hindrance=hindrance)


def _asked_metrics(
    system: AuditedSystem, claim: StatedClaim, players: "WorkerPool[TrialChunk, ChunkTrials]", until: float
) -> tuple[str, ...]:
    """Return the names of the metrics that a strategy looks up in replies, found by single trials if not yet known.

    Nothing is looked for if the app's local training decides what clients report, or if the user says it.
    """
    if system.asked or system.metrics is not None or _trains_locally(system, claim):
        return system.asked

    def play(names: tuple[str, ...]) -> LookupTrial:
        trial = players.done([TrialChunk(_plainest(system, claim), 0, reported=names)], until).get(0)
        return LookupTrial((), None) if trial is None else LookupTrial(trial.asked, trial.transcripts[0].refusal)

    return find_asked_metrics(system.weight, play).names


def _trains_locally(system: AuditedSystem, claim: StatedClaim) -> bool:
    """Return whether clients of the trials train by the app's own local training, which says what they report."""
    return claim.neighbours.unit is not Unit.CLIENT and system.local is not None


def _is_of_trials_alone(system: AuditedSystem, claim: StatedClaim, kind: str, group: str) -> bool:
    """Return whether a number beside the model is one that only clients of the trials are known to report.

    `kind` is the name of the scenario, and `group` that of the number.

    A strategy may release whatever clients report, by no name of its own. What it computes, or looks up by its name, is
    known to be released.
    """
    if _trains_locally(system, claim):
        return False
    scenario = BY_NAME[kind]
    number = group.partition(": ")[2]
    if scenario.differs_in_metrics:
        is_ours = system.metrics is None and not set(system.asked) - {system.weight}
        return is_ours or (number == LOSS and not system.is_known_to_report(LOSS))
    is_of_examples = scenario.differs_in_examples or number == system.weight
    return is_of_examples and not system.is_known_to_report(system.weight)


def _bears_zero(
    system: AuditedSystem, players: "WorkerPool[TrialChunk, ChunkTrials]", until: float, asked: tuple[str, ...]
) -> bool:
    """Return whether trials in which the target sends an update of exactly zero end as other trials do."""
    probe = ZERO_PROBE if system.model is None else ZERO_PROBE_ON_OWN
    ends_well = [
        (bool(bit), _ends_well(transcript))
        for chunk_trials in players.done([TrialChunk(probe.name, 0, asked=asked)], until).values()
        for transcript, bit in zip(chunk_trials.transcripts, chunk_trials.present, strict=True)
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
    longer_trials = players.done([chunk], until).get(0)
    if longer_trials is None or len(longer_trials.transcripts) < CHUNK:
        return claim_audit
    bare = late_rounds_without_noise(longer_trials.transcripts, longer_trials.present, claim_audit.claim.rounds)
    return replace(claim_audit, bare_rounds=bare, verdict=with_doubt(claim_audit.verdict, bool(bare)))


def _ends_well(transcript: Transcript) -> bool:
    """Return whether a trial ended without an error, and released finite numbers alone."""
    return transcript.refusal is None and not errors_in(transcript) and bool(np.all(np.isfinite(transcript.steps)))


@dataclass
class _TrialLog:
    """Facts about all trials of an audit so far, besides their transcripts."""

    trial_summaries: dict[str, ScenarioTrialsSummary] = field(default_factory=dict)  # by the name of the scenario
    failed: Counter[str] = field(default_factory=Counter)  # number of trials with each error message of clients
    outside: set[str] = field(default_factory=set)  # paths outside of the working copies to which trials wrote
    last_words: dict[str, str] = field(default_factory=dict)  # the strategy's last refusal, by scenario

    def add(self, name: str, first: int, transcripts: Sequence[Transcript]) -> tuple[str, ...]:
        """Add the transcripts `transcripts` of a scenario's trials, whose numbers begin with `first`.

        Returns the names of recorded numbers from which D and D' could be told apart.
        """
        summary = self.trial_summaries.get(name, ScenarioTrialsSummary())
        numbers = evidence_names(transcripts)
        trials = max(summary.trials, first + len(transcripts))
        self.trial_summaries[name] = ScenarioTrialsSummary(trials, tuple(dict.fromkeys((*summary.names, *numbers))))
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
