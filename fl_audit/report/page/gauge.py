"""The one picture of the first screen: what was promised, what was shown, and which breach would have been found.

It is made of boxes and not of a drawing, so that its words keep their size on a phone. Its axis ends beyond everything
that was measured, and what could not have been found is marked as such.
"""

import math
from dataclasses import dataclass
from html import escape

from fl_audit.evidence.belief.noise_estimate import BREACH, kept_epsilon
from fl_audit.evidence.belief.verdict import Judgement, Verdict
from fl_audit.evidence.findings.verdict import VerdictNumbers
from fl_audit.privacy.guarantee import Guarantee
from fl_audit.report.finding import RunContents
from fl_audit.report.sections.verdict import verdict_of
from fl_audit.report.wording import number_text, one_in, percent

_ENDS = (2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0)  # where the axis may end, in multiples of the promised epsilon
_LOOSE = 0.97  # an accountant is loose where the claimed noise gives away less than this share of what it promises


@dataclass(frozen=True)
class _Row:
    """One line of the gauge."""

    name: str
    words: str
    # Parts of the axis: what each stands for, and both its ends in multiples of the promise.
    bars: tuple[tuple[str, float, float], ...] = ()


def gauge_html(contents: RunContents) -> str:
    """Return the gauge of a run; where nothing was promised it says so in its words and has no bars."""
    numbers, promise = verdict_of(contents), contents.facts.guarantee
    found = numbers.judgement
    if promise is None:
        rows = (_Row("Promised", "no limit"), _Row("Shown", "not measured"), _Row("Findable", "no promise to break"))
        return _figure("Promised, shown, findable: nothing was promised", rows)
    promised = _Row("Promised", f"{number_text(promise.epsilon, 3)} at most", (("promised", 0.0, 1.0),))
    title = f"How much could be given away: epsilon at delta {number_text(promise.delta, 3)}, where 0 is nothing"
    if found is None:
        rows = (promised, _Row("Shown", "not measured"), _Row("Findable", "nothing: no insider took part"))
        return _figure(title, rows, _ENDS[0])
    shown, limit = (_share(epsilon, promise) for epsilon in (found.epsilon_lower_bound, found.limit_of_detection))
    reach = 1.05 * max(share for share in (1.0, shown, limit) if math.isfinite(share))
    end = next((end for end in _ENDS if end >= reach), _ENDS[-1])
    kept = _marked(numbers, promise)
    rows = (promised, _shown(found, promise, shown, numbers.verdict), _findable(numbers, promise, limit, kept, end))
    note = " ".join(text for text in (_of_verdict(numbers), _of_accountant(kept, promise)) if text)
    return _figure(title, rows, end, None if kept is None else _share(kept, promise), note)


def _shown(found: Judgement, promise: Guarantee, share: float, verdict: Verdict) -> _Row:
    bound = found.epsilon_lower_bound
    words = f"{number_text(bound, 3)} at least (at {percent(found.confidence)})"
    kind = "shown beyond" if verdict is Verdict.VIOLATED and bound > promise.epsilon else "shown"
    return _Row("Shown", words, ((kind, 0.0, share),))


def _findable(numbers: VerdictNumbers, promise: Guarantee, limit: float, kept: float | None, end: float) -> _Row:
    """Return the row of what would have been found, and of what could not be."""
    begin = 1.0 if kept is None else _share(kept, promise)
    most = number_text(numbers.judged.limit_of_detection, 3)
    if not math.isfinite(limit) or limit <= 0:
        return _Row("Findable", "nothing could have been found", (("blind", begin, end),))
    bars = (("blind", begin, limit), ("findable", limit, end))
    return _Row("Findable", f"{most} or more; a smaller breach may hide", bars)


def _share(epsilon: float, promise: Guarantee) -> float:
    """Return an epsilon in multiples of the promise, at least 0."""
    if promise.epsilon <= 0:
        return 0.0 if epsilon <= 0 else math.inf
    return max(0.0, epsilon / promise.epsilon)


def _marked(numbers: VerdictNumbers, promise: Guarantee) -> float | None:
    """Return what the claimed noise gives away where its accountant is so loose that this is marked, else None."""
    kept = kept_epsilon(promise)
    return None if numbers.judges_scores or _share(kept, promise) > _LOOSE else kept


def _figure(
    title: str, rows: tuple[_Row, ...], end: float | None = None, mark: float | None = None, note: str = ""
) -> str:
    spoken = ". ".join(f"{row.name}: {row.words}" for row in rows)
    lines = "\n".join(_row_html(row, end, mark) for row in rows)
    axis = "" if end is None else _axis(end)
    below = f'<p class="small">{escape(note)}</p>' if note else ""
    return (
        f'<figure class="gauge"><figcaption>{escape(title)}</figcaption>\n'
        f'<div role="img" aria-label="{escape(f"{title}. {spoken}.")}">\n{lines}\n{axis}</div>{below}</figure>'
    )


def _row_html(row: _Row, end: float | None, mark: float | None) -> str:
    drawn = ""
    if end is not None:
        for kind, *ends in row.bars:
            low, high = (min(at, end) for at in ends)
            if high > low:
                size = f"left:{100 * low / end:.2f}%;width:{100 * (high - low) / end:.2f}%"
                drawn += f'<i class="bar {kind}" style="{size}"></i>'
        drawn += f'<i class="line" style="left:{100 / end:.2f}%"></i>'
        if mark is not None:
            drawn += f'<i class="kept" style="left:{100 * mark / end:.2f}%"></i>'
    return (
        f'<div class="row"><span class="name">{escape(row.name)}</span><span class="track">{drawn}</span>'
        f'<span class="said">{escape(row.words)}</span></div>'
    )


def _axis(end: float) -> str:
    half = ((BREACH, f"{BREACH:g} times"),) if end == _ENDS[0] else ()
    zero = ((0.0, "0"),) if end <= _ENDS[1] else ()  # beyond, "promised" stands too close to it
    marks = (*zero, (1.0, "promised"), *half, (end, "twice" if end == 2 else f"{end:g} times"))
    ticks = "".join(f'<span style="left:{100 * at / end:.2f}%">{text}</span>' for at, text in marks)
    return f'<div class="row axis"><span class="name"></span><span class="track">{ticks}</span></div>\n'


def _of_verdict(numbers: VerdictNumbers) -> str:
    """Say why the verdict is another than the bar of what was shown suggests."""
    found = numbers.judged
    shows_breach = found.epsilon_lower_bound > numbers.promised
    is_broken = numbers.verdict is Verdict.VIOLATED
    if is_broken and not shows_breach:
        return "This scale shows one kind of breach only; what broke the promise is named above."
    if shows_breach and not is_broken:
        chance = one_in(1 - found.confidence).removeprefix("about ")
        return (
            f"What is shown at {percent(found.confidence)} passes the promise, as it does for at most {chance} "
            f"promises that are kept; the verdict asks for a sign as rare as {one_in(found.level)}."
        )
    return ""


def _of_accountant(kept: float | None, promise: Guarantee) -> str:
    """Say where a breach begins, where the accountant promises more epsilon than the claimed noise gives away."""
    if kept is None:
        return ""
    how = "exactly" if promise.claim.profile.gaussian_mu is not None else "at most"
    return (
        f"A breach begins at the dotted mark, what the claimed noise gives away, {how} {number_text(kept, 3)}; "
        f"{promise.accountant} counts it as {number_text(promise.epsilon, 3)}."
    )
