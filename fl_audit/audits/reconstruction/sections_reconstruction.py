"""Findings and sections of a reconstruction audit: how often an attacker guesses right, and reconstructed images.

Both are shown beside the largest success that the guarantee allows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fl_audit.array_types import Floats, Floats32, Integers
from fl_audit.audits.reconstruction.candidate_hits import candidate_ranks
from fl_audit.audits.reconstruction.reconstruction_metrics import NoiseLevelReconstructions, TrueAndReconstructedImages
from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.mechanisms.contribution import LocalTraining
from fl_audit.mechanisms.threat_model import Adversary
from fl_audit.report.figure_style import INK, MUTED, SMALL_TEXT_SIZE, finish_axes
from fl_audit.report.report_elements import FindingFigure, ReportContents, ReportNumber, Section, Table
from fl_audit.statistics.advantage import clopper_pearson
from fl_audit.statistics.claim_comparisons import READING_LEVEL
from fl_audit.verdict.declared_tests import TestName
from fl_audit.words import is_certainty, limit_text, percent

_GUESSES = (1, 5, 10, 100)


@dataclass(frozen=True)
class TopGuessRate:
    """The share of trials in which the true candidate is among the attacker's first `guesses` guesses."""

    guesses: int  # number of guesses that count in each trial
    share: float  # share of the trials in which one of these guesses is right, from 0 to 1
    low: float  # lower end of the Clopper-Pearson interval of the share
    high: float  # upper end of the Clopper-Pearson interval of the share
    chance: float  # largest probability that one of these guesses is right without any release
    bound: float  # the largest share that the guarantee allows


@dataclass(frozen=True)
class CandidateRanksFinding:
    """The success of an attacker who knows all data except which of several candidates was used in the training."""

    candidates: int  # number of candidates, which are records, clients, or values of a column
    # Probability that the true candidate is among the best k guesses without any release, for k from 1 to all,
    # (candidates,): the sum of the k largest prior probabilities.
    chances: Floats
    ranks: Integers  # rank of the true candidate in the attacker's order, 1 for the first guess, (trials,)
    successes: tuple[TopGuessRate, ...]  # one entry for each number of guesses, ascending from one guess
    confidence: float  # confidence of each interval
    # Largest mu over candidates and trials: norm of a candidate's contribution over the noise, all rounds together.
    longest: float
    median: float  # median of mu over candidates and trials

    @property
    def are_even(self) -> bool:
        """Whether all candidates have the same prior probability, up to rounding."""
        return bool(abs(self.chances[0] - 1 / self.candidates) < 1e-9)

    @cached_property
    def first(self) -> TopGuessRate:
        """The share of trials in which the attacker's first guess is right, with its interval and the allowed share."""
        return self.successes[0]

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `reconstruction`, for `summary.json`."""
        return {
            "reconstruction": {
                "candidates": self.candidates,
                "trials": len(self.ranks),
                "confidence": self.confidence,
                "success": json_of(self.successes),
                "mean_rank": float(np.mean(self.ranks)),
                "largest_mu": self.longest,
                "median_mu": self.median,
            }
        }


def measure_reconstruction(run: FinishedRun, _: Findings) -> CandidateRanksFinding | None:
    """Return how often the adversary guessed the true candidate, with the limits of the guarantee.

    The result is None if the run is no reconstruction audit, or if it has no insider or no guarantee.
    """
    ranks = candidate_ranks(run)
    table = run.tables.targets
    guarantee = run.plan.guarantee
    if ranks is None or table is None or guarantee is None:
        return None
    candidates = run.plan.federation.targets
    mu = table["mu"].to_numpy(dtype=np.float64)
    chances = np.minimum(np.cumsum(np.sort(run.plan.federation.prior_of_candidates)[::-1]), 1.0)
    confidence = run.plan.confidence
    estimates = []
    for guesses in sorted({min(guess_count, candidates - 1) for guess_count in _GUESSES}):
        chance = float(chances[guesses - 1])
        hits = int(np.sum(ranks <= guesses))
        bound = guarantee.reconstruction_bound(chance)
        assert bound is not None, "the reconstruction audit has global noise"
        low, high = clopper_pearson(hits, len(ranks), confidence)
        estimates.append(TopGuessRate(guesses, hits / len(ranks), low, high, chance, bound))
    mus = float(mu.max()), float(np.median(mu))
    return CandidateRanksFinding(candidates, chances, ranks, tuple(estimates), confidence, *mus)


_HOW = (
    "share of trials; the attacker orders the candidates by the exact likelihood of all releases; the bound is "
    "1 - f(chance), f the trade-off curve against the release without the candidate (Hayes et al. 2023)"
)


def _row(rate: TopGuessRate, finding: CandidateRanksFinding) -> ReportNumber:
    name = (
        "Right one named in the first guess" if rate.guesses == 1 else f"Right one in the first {rate.guesses} guesses"
    )
    hits = int(np.sum(finding.ranks <= rate.guesses))
    trials = len(finding.ranks)
    level = TestName.CANDIDATES.level if rate.guesses == 1 else READING_LEVEL
    return ReportNumber(
        name,
        rate.share,
        _HOW,
        rate.low,
        rate.high,
        finding.confidence,
        rate.bound,
        is_share=True,
        largest=1.0,
        on_page=rate.guesses == 1,
        wide=partial(clopper_pearson, hits, trials),
        level=level,
    )


def _sentence(finding: CandidateRanksFinding, contents: ReportContents) -> str:
    first = finding.first
    column = contents.plan.federation.candidate_column
    row = _row(first, finding)
    text = contents.words.one if column is None else f"value of {column}"
    likely = "equally likely " if finding.are_even else ""
    return (
        f"Of {finding.candidates:,} {likely}candidates an attacker who knew everything else named the right {text} "
        f"in {row.shown.value} of the trials ({row.shown.interval} at {percent(finding.confidence)} confidence), where "
        f"guessing has {percent(first.chance)} and the guarantee allows {row.shown.claim}{row.comparison_in_brackets}."
    )


def _rows(finding: CandidateRanksFinding, _: ReportContents) -> list[ReportNumber]:
    return [
        *(_row(success, finding) for success in finding.successes),
        ReportNumber("Signal of the candidates, median mu", finding.median, "length of a contribution over the noise"),
        ReportNumber("Signal of the candidates, largest mu", finding.longest, "likewise"),
    ]


def _tables(finding: CandidateRanksFinding, _: ReportContents) -> list[Table]:
    columns = ("Guesses", "Right one among them", "By chance", "Allowed")
    values = [(success, _row(success, finding)) for success in finding.successes]
    rows = tuple((rate.guesses, row.text, percent(rate.chance), row.shown.claim) for rate, row in values)
    title = f"Naming the right one of {finding.candidates:,} candidates, intervals at {percent(finding.confidence)}"
    return [Table(f"{title} confidence each", columns, rows)]


def _draw(figure: Figure, finding: CandidateRanksFinding, contents: ReportContents) -> None:
    axes = figure.add_subplot()
    guesses = np.unique(np.geomspace(1, finding.candidates, 200).astype(int))
    values = np.array([np.mean(finding.ranks <= count) for count in guesses])
    fewest = np.unique(np.geomspace(1, finding.candidates, 40).astype(int))
    allowed = [contents.guarantee.reconstruction_bound(float(finding.chances[count - 1])) or 1.0 for count in fewest]
    axes.step(guesses, values, where="post", color=INK, label="named in this run")
    axes.plot(fewest, allowed, "--", color=INK, label="the guarantee allows")
    axes.plot(guesses, finding.chances[guesses - 1], ":", color=MUTED, label="by chance")
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    finish_axes(axes, "Right one among the first guesses", "Guesses", "Share of trials")


def _caption(finding: CandidateRanksFinding, _: ReportContents) -> str:
    return (
        f"How often the right one of {finding.candidates:,} candidates was among the attacker's first guesses, beside "
        "what the guarantee allows and what guessing has."
    )


RECONSTRUCTION = Section(
    "reconstruction",
    "What could be reconstructed",
    CandidateRanksFinding,
    measure_reconstruction,
    keys=("reconstruction",),
    on_page=True,
    sentence=_sentence,
    rows=_rows,
    tables=_tables,
    picture=FindingFigure("Right one among the first guesses", _draw, _caption),
)


_SHOWN, _GAP = 8, 3  # pictures in a row, and white pixels between them


def _epsilon(reconstructions: NoiseLevelReconstructions, is_own: bool) -> str:
    level = reconstructions.level.epsilon
    return (f"epsilon {level:.3g}" if math.isfinite(level) else "no noise") + (", this run" if is_own else "")


def _allowed(reconstructions: NoiseLevelReconstructions, once: str = "") -> str:
    """Return a text such as "12 % in 3 guesses": the largest share of right identifications that the guarantee allows.

    If the attacker has a single guess, the text ends with `once` instead of the number of guesses.
    """
    often = once if reconstructions.guesses == 1 else f" in {reconstructions.guesses} guesses"
    return f"{limit_text(round(reconstructions.level.bound, 4))}{often}"


def draw_pictures(
    figure: Figure, true: Floats32, drawings: Sequence[NoiseLevelReconstructions], own_values: int | None = None
) -> None:
    """Draw true images in the first row of a figure, and their reconstructions at each level of noise in further rows.

    A text below each row gives the epsilon, and the largest share of images that may be identified.

    Shapes: `true` (images, *shape).
    """
    rows = [(true, "originals")]
    for number, drawing in enumerate(drawings):
        naming = f"{'' if number == own_values else ' named'} at most {_allowed(drawing, ' of the time')}"
        if is_certainty(drawing.level.bound):
            naming = " may always be named"
        names = f"the right one of {drawing.likeness.candidates:,}{naming}"
        rows.append((drawing.pictures, f"{_epsilon(drawing, number == own_values)}: {names}"))
    for axes, (pictures, text) in zip(figure.subplots(len(rows), 1), rows, strict=True):
        axes.imshow(_strip(pictures[:_SHOWN]), cmap="gray", vmin=0, vmax=1, interpolation="nearest", aspect="equal")
        axes.set(xticks=[], yticks=[])
        axes.set_xlabel(text, loc="left", fontsize=SMALL_TEXT_SIZE, color=INK)
        axes.spines[:].set_visible(False)


def _strip(pictures: Floats32) -> Floats32:
    """Return images side by side as one array for matplotlib, (height, width) or (height, width, 3)."""
    stacked = pictures[:, None] if pictures.ndim == 3 else pictures
    framed = np.pad(stacked, ((0, 0), (0, 0), (0, 0), (0, _GAP)), constant_values=1)
    strip = np.concatenate(list(framed), axis=2)
    return strip[0] if len(strip) == 1 else np.moveaxis(strip, 0, -1)


def _inversion_sentence(images: TrueAndReconstructedImages, contents: ReportContents) -> str:
    reconstructions = images.drawings[images.own]
    quality = reconstructions.likeness
    federation = contents.plan.federation
    by_server = federation.threat_model.adversary is Adversary.SERVER
    party = "a server that saw every contribution, knew" if by_server else "an attacker who knew"
    reference = (
        "all records of other clients"
        if isinstance(federation.mechanism.contribution, LocalTraining)
        else "all other records"
    )
    claimed = f"the guarantee lets nobody name more than {_allowed(reconstructions)}"
    if is_certainty(reconstructions.level.bound):
        claimed = "the guarantee does not limit how many of them somebody names"
    return (
        f"Of {len(images.true):,} pictures {party} {reference} and was sent the same model in every round drew "
        f"likenesses of {quality.psnr.mean():.1f} dB on average at this run's noise, by which "
        f"{percent(float(quality.named.mean()))} were nearer to the true one than to {quality.candidates - 1:,} "
        "others; "
        f"{'nothing is claimed' if contents.plan.guarantee is None else claimed}."
    )


def _inversion_tables(images: TrueAndReconstructedImages, _: ReportContents) -> list[Table]:
    columns = ("Noise", "PSNR in dB", "best 1 %", "SSIM", "best 1 % ", "Named by the drawing", "Allowed")
    rows = []
    for index, drawing in enumerate(images.drawings):
        likeness = drawing.likeness
        psnr = (f"{value:.1f}" for value in (likeness.psnr.mean(), likeness.worst(likeness.psnr)))
        ssim = (f"{value:.2f}" for value in (likeness.ssim.mean(), likeness.worst(likeness.ssim)))
        names = percent(float(likeness.named.mean()))
        allowed = limit_text(round(drawing.level.bound, 4))
        rows.append((_epsilon(drawing, index == images.own), *psnr, *ssim, names, allowed))
    title = "What is drawn of records that were used, mean and the 1 % that were drawn best"
    return [Table(title, columns, tuple(rows))]


def _inversion_caption(images: TrueAndReconstructedImages, _: ReportContents) -> str:
    return (
        "Records and what is drawn of them by whoever knows all other contributions, from no noise to much; below each "
        f"row, how often the right one of {images.drawings[0].likeness.candidates:,} is named at most."
    )


INVERSION = Section(
    "pictures",
    "What could be drawn",
    TrueAndReconstructedImages,
    lambda run, _: run.find(TrueAndReconstructedImages),
    keys=("pictures",),
    on_page=True,
    sentence=_inversion_sentence,
    tables=_inversion_tables,
    picture=FindingFigure(
        "Records, and what could be drawn of them",
        lambda figure, images, _: draw_pictures(figure, images.true, images.drawings, images.own),
        _inversion_caption,
        height=5.6,
    ),
)
