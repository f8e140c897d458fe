"""Draw the gauge of a report: a bar chart of claimed epsilon, proven lower bound and limit of detection.

It consists of HTML boxes, so that its text keeps its size on a phone. Its axis ends beyond all measured values, and the
range of breaches that could not have been found is marked.
"""

import math
from dataclasses import dataclass
from html import escape

from fl_audit.privacy.guarantee import Guarantee
from fl_audit.report.report_elements import ReportContents
from fl_audit.verdict.findings_verdict import VerdictFinding
from fl_audit.verdict.noise_estimate import BREACH, recomputed_epsilon
from fl_audit.verdict.sections_verdict import verdict_of
from fl_audit.verdict.verdict import Verdict
from fl_audit.words import number_text, one_in, percent

_ENDS = (2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0)  # possible ends of the axis, in multiples of the claimed epsilon
_LOOSE = 0.97  # the gauge marks the epsilon of the claimed noise if it is at most this share of the claimed epsilon


@dataclass(frozen=True)
class _GaugeRow:
    name: str
    words: str
    # For each bar: its CSS class, and its left and right end as multiples of the claimed epsilon.
    bars: tuple[tuple[str, float, float], ...] = ()


def gauge_html(contents: ReportContents) -> str:
    """Return the gauge of a run as HTML: bars for claimed epsilon, proven lower bound and limit of detection.

    The limit of detection is the smallest epsilon that the audit would have found. Without a guarantee the gauge has
    only text and no bars.
    """
    numbers = verdict_of(contents)
    guarantee = contents.plan.guarantee
    judgement = numbers.judgement
    if guarantee is None:
        rows = (
            _GaugeRow("Claimed", "no limit"),
            _GaugeRow("Shown", "not measured"),
            _GaugeRow("Limit of detection", "no guarantee to break"),
        )
        of_training = "" if contents.plan.federation.local_randomizer is None else " of the training"
        return _figure(f"Claimed, shown and limit of detection: nothing was claimed{of_training}", rows)
    claimed = _GaugeRow("Claimed", f"{number_text(guarantee.epsilon, 3)} at most", (("claimed", 0.0, 1.0),))
    title = f"How much could be given away: epsilon at delta {number_text(guarantee.delta, 3)}, where 0 is nothing"
    if judgement is None:
        rows = (
            claimed,
            _GaugeRow("Shown", "not measured"),
            _GaugeRow("Limit of detection", "nothing: no insider took part"),
        )
        return _figure(title, rows, _ENDS[0])
    bound = judgement.epsilon_lower_bound
    bound_ratio = _ratio_to_guarantee(bound, guarantee)
    limit = _ratio_to_guarantee(judgement.limit_of_detection, guarantee)
    reach = 1.05 * max(share for share in (1.0, bound_ratio, limit) if math.isfinite(share))
    end = next((end for end in _ENDS if end >= reach), _ENDS[-1])
    kind = "shown beyond" if numbers.verdict is Verdict.VIOLATED and bound > guarantee.epsilon else "shown"
    words = f"{number_text(bound, 3)} at least (at {percent(judgement.confidence)})"
    # If the accountant is so loose that the claimed noise's own epsilon is marked, a breach begins there.
    recomputed = recomputed_epsilon(guarantee)
    mark = (
        None
        if numbers.judges_scores or _ratio_to_guarantee(recomputed, guarantee) > _LOOSE
        else _ratio_to_guarantee(recomputed, guarantee)
    )
    begin = 1.0 if mark is None else mark
    limits = _GaugeRow("Limit of detection", "nothing could have been found", (("blind", begin, end),))
    if math.isfinite(limit) and limit > 0:
        hidden = f"{number_text(judgement.limit_of_detection, 3)}; a smaller breach may hide"
        limits = _GaugeRow("Limit of detection", hidden, (("blind", begin, limit), ("detectable", limit, end)))
    note = f"{_of_verdict(numbers)} {'' if mark is None else _of_accountant(recomputed, guarantee)}".strip()
    return _figure(title, (claimed, _GaugeRow("Shown", words, ((kind, 0.0, bound_ratio),)), limits), end, mark, note)


def _ratio_to_guarantee(epsilon: float, guarantee: Guarantee) -> float:
    """Return the ratio of an epsilon to the guaranteed epsilon, at least 0.

    If the guaranteed epsilon is 0, the ratio is infinite for a positive epsilon, and otherwise 0.
    """
    if guarantee.epsilon <= 0:
        return 0.0 if epsilon <= 0 else math.inf
    return max(0.0, epsilon / guarantee.epsilon)


def _figure(
    title: str, rows: tuple[_GaugeRow, ...], end: float | None = None, mark: float | None = None, note: str = ""
) -> str:
    spoken = ". ".join(f"{row.name}: {row.words}" for row in rows)
    lines = "\n".join(_row_html(row, end, mark) for row in rows)
    axis = "" if end is None else _axis(end)
    below = f'<p class="small">{escape(note)}</p>' if note else ""
    return (
        f'<figure class="gauge"><figcaption>{escape(title)}</figcaption>\n'
        f'<div role="img" aria-label="{escape(f"{title}. {spoken}.")}">\n{lines}\n{axis}</div>{below}</figure>'
    )


def _row_html(row: _GaugeRow, end: float | None, mark: float | None) -> str:
    drawing = ""
    if end is not None:
        for kind, *ends in row.bars:
            low, high = (min(at, end) for at in ends)
            if high > low:
                size = f"left:{100 * low / end:.2f}%;width:{100 * (high - low) / end:.2f}%"
                drawing += f'<i class="bar {kind}" style="{size}"></i>'
        drawing += f'<i class="line" style="left:{100 / end:.2f}%"></i>'
        if mark is not None:
            drawing += f'<i class="kept" style="left:{100 * mark / end:.2f}%"></i>'
    name = f'<span class="name">{escape(row.name)}</span>'
    text_html = f'<span class="said">{escape(row.words)}</span>'
    return f'<div class="row">{name}<span class="track">{drawing}</span>{text_html}</div>'


def _axis(end: float) -> str:
    half = ((BREACH, f"{BREACH:g} times"),) if end == _ENDS[0] else ()
    zero = ((0.0, "0"),) if end <= _ENDS[1] else ()  # beyond, "claimed" stands too close to it
    marks = (*zero, (1.0, "claimed"), *half, (end, "twice" if end == 2 else f"{end:g} times"))
    ticks = "".join(f'<span style="left:{100 * at / end:.2f}%">{text}</span>' for at, text in marks)
    return f'<div class="row axis"><span class="name"></span><span class="track">{ticks}</span></div>\n'


def _of_verdict(finding: VerdictFinding) -> str:
    """Return what the shown epsilon means beside the verdict, in sentences; empty if both show a breach.

    They disagree if only one of them says that the guarantee is broken.
    """
    judged = finding.judged
    shows_breach = judged.epsilon_lower_bound > finding.claimed
    is_broken = finding.verdict is Verdict.VIOLATED
    if is_broken and not shows_breach:
        return "This scale shows one kind of breach only; what broke the guarantee is named above."
    if shows_breach and not is_broken:
        chance = one_in(1 - judged.confidence).removeprefix("about ")
        return (
            f"What is shown at {percent(judged.confidence)} passes the guarantee, as it does for at most {chance} "
            f"guarantees that are kept; the verdict asks for a sign as rare as {one_in(judged.level)}."
        )
    if is_broken or judged.epsilon_lower_bound <= 0:
        return ""
    return (
        "Shown is what the insider was proved to learn. That it comes close to what is claimed is no alarm: this "
        "insider knows everything but one answer, and learns what the guarantee allows. The verdict says whether it is "
        "more."
    )


def _of_accountant(recomputed: float, guarantee: Guarantee) -> str:
    """Return a sentence on two epsilons: the one at which a breach begins, and the one that the accountant computes.

    A breach begins at `recomputed`. This is the epsilon of the claimed noise itself, without the slack of the
    accountant.
    """
    manner = "exactly" if guarantee.claim.profile.gaussian_mu is not None else "at most"
    begins = f"A breach begins at the dotted mark: the claimed noise gives away {manner} {number_text(recomputed, 3)}"
    return f"{begins}; {guarantee.accountant} counts it as {number_text(guarantee.epsilon, 3)}."
