"""The one picture of the first screen: what was promised, what was shown, and which breach would have been found.

Its axis is the same in every report: from nothing to twice the promise. It is made of boxes and not of a drawing, so
that its words keep their size on a phone.
"""

import math
from dataclasses import dataclass
from html import escape

from fl_audit.errors import InputError
from fl_audit.evidence.belief.noise_estimate import BREACH
from fl_audit.evidence.belief.verdict import Judgement, Verdict
from fl_audit.privacy.guarantee import Guarantee
from fl_audit.report.contents import RunContents
from fl_audit.report.headline import verdict_of
from fl_audit.report.sections.verdict import VerdictNumbers, judges_scores
from fl_audit.report.wording import number_text, one_in, percent

_END = 2.0
"""Where the axis ends, in multiples of the promised epsilon."""
_LOOSE = 0.97
"""An accountant is loose where the claimed noise gives away less than this share of what it promises."""


@dataclass(frozen=True)
class _Row:
    """One line of the gauge: its bar covers a part of the axis, `low` to `high` in multiples of the promise."""

    name: str
    words: str
    kind: str
    low: float = 0.0
    high: float = 0.0


def gauge_html(contents: RunContents) -> str:
    """Return the gauge of a run; where nothing was promised it says so in its words and has no bars."""
    rows, promise = _rows(contents), contents.facts.guarantee
    spoken = ". ".join(f"{row.name}: {row.words}" for row in rows)
    found = verdict_of(contents).judgement
    kept = None if promise is None or found is None else _marked(found, promise)
    mark = None if promise is None or kept is None else _share(kept, promise)
    lines = "\n".join(_row_html(row, promise is not None, mark) for row in rows)
    axis = "" if promise is None else _axis_html()
    title = _title(promise)
    return (
        f'<figure class="gauge"><figcaption>{escape(title)}</figcaption>\n'
        f'<div role="img" aria-label="{escape(f"{title}. {spoken}.")}">\n{lines}\n{axis}</div>'
        f"{_note(contents, kept)}</figure>"
    )


def _title(promise: Guarantee | None) -> str:
    if promise is None:
        return "Promised, shown, detectable: nothing was promised"
    return f"Epsilon at delta {number_text(promise.delta, 3)}: 0 gives nothing away"


def _rows(contents: RunContents) -> tuple[_Row, ...]:
    promise, found = contents.facts.guarantee, verdict_of(contents).judgement
    if promise is None:
        return (
            _Row("Promised", "no limit", "promised", 0.0, _END),
            _Row("Shown", "not measured", "shown"),
            _Row("Detectable", "no promise to break", "detectable"),
        )
    promised = _Row("Promised", f"{number_text(promise.epsilon, 3)} at most", "promised", 0.0, 1.0)
    if found is None:
        missing = (
            _Row("Shown", "not measured", "shown"),
            _Row("Detectable", "nothing: no insider took part", "detectable"),
        )
        return promised, *missing
    is_broken = verdict_of(contents).verdict is Verdict.VIOLATED
    return promised, _shown(found, promise, is_broken), _detectable(found, promise)


def _shown(found: Judgement, promise: Guarantee, is_broken: bool) -> _Row:
    bound = found.epsilon_lower_bound
    words = f"{number_text(bound, 3)} at least (at {percent(found.confidence)})"
    kind = "shown beyond" if is_broken and bound > promise.epsilon else "shown"
    return _Row("Shown", words, kind, 0.0, _share(bound, promise))


def _detectable(found: Judgement, promise: Guarantee) -> _Row:
    limit = found.limit_of_detection
    if judges_scores(found):
        return _showable(limit, promise)
    if not math.isfinite(limit) or limit <= 0:
        return _Row("Detectable", "nothing could have been found", "detectable")
    words = f"{number_text(limit, 3)} or more, as a breach"
    return _Row("Detectable", words, "detectable", _share(limit, promise), _END)


def _showable(most: float, promise: Guarantee) -> _Row:
    """Return the row where scores alone are judged: they show a breach between the promise and the most they can."""
    if most <= promise.epsilon:
        return _Row("Detectable", f"nothing: scores show {number_text(most, 3)} at most", "detectable")
    words = f"scores show {number_text(most, 3)} at most, if told apart perfectly"
    return _Row("Detectable", words, "detectable", 1.0, _share(most, promise))


def kept_epsilon(promise: Guarantee) -> float:
    """Return the epsilon that the claimed noise gives away by its own law, at the promised delta.

    It is the promised one where that law does not resolve so small a delta.
    """
    try:
        return promise.claim.profile.epsilon(promise.delta)
    except InputError:
        return promise.epsilon


def _share(epsilon: float, promise: Guarantee) -> float:
    """Return an epsilon in multiples of the promise, cut to the axis."""
    if promise.epsilon <= 0:
        return 0.0 if epsilon <= 0 else _END
    return min(_END, max(0.0, epsilon / promise.epsilon))


def _marked(found: Judgement, promise: Guarantee) -> float | None:
    """Return what the claimed noise gives away where its accountant is so loose that this is marked, else None."""
    kept = kept_epsilon(promise)
    return None if judges_scores(found) or _share(kept, promise) > _LOOSE else kept


def _row_html(row: _Row, has_promise: bool, mark: float | None) -> str:
    left, width = (f"{100 * part / _END:.2f}%" for part in (row.low, row.high - row.low))
    bar = f'<i class="bar {row.kind}" style="left:{left};width:{width}"></i>' if row.high > row.low else ""
    line = '<i class="line"></i>' if has_promise else ""
    if mark is not None:
        line += f'<i class="kept" style="left:{100 * mark / _END:.2f}%"></i>'
    return (
        f'<div class="row"><span class="name">{escape(row.name)}</span><span class="track">{bar}'
        f'{line}</span><span class="said">{escape(row.words)}</span></div>'
    )


def _axis_html() -> str:
    marks = ((0.0, "0"), (1.0, "promised"), (BREACH, f"{BREACH:g} times"), (_END, "twice"))
    ticks = "".join(f'<span style="left:{100 * at / _END:.2f}%">{text}</span>' for at, text in marks)
    return f'<div class="row axis"><span class="name"></span><span class="track">{ticks}</span></div>\n'


def _note(contents: RunContents, kept: float | None) -> str:
    """Return what a reader must know to read the gauge, where its bars alone would mislead."""
    numbers, promise = verdict_of(contents), contents.facts.guarantee
    if numbers.judgement is None or promise is None:
        return ""
    of_accountant = "" if kept is None else _of_accountant(kept, promise)
    said = [text for text in (_of_verdict(numbers, promise), of_accountant) if text]
    return f'<p class="small">{escape(" ".join(said))}</p>' if said else ""


def _of_verdict(numbers: VerdictNumbers, promise: Guarantee) -> str:
    """Say why the verdict is another than the bar of what was shown suggests."""
    assert numbers.judgement is not None, "only what was judged has a bar"
    shows_breach = numbers.judgement.epsilon_lower_bound > promise.epsilon
    is_broken = numbers.verdict is Verdict.VIOLATED
    if is_broken and not shows_breach:
        return "This scale shows one kind of breach only; what broke the promise is named above."
    if shows_breach and not is_broken:
        chance = one_in(1 - numbers.judgement.confidence).removeprefix("about ")
        return (
            f"What is shown at {percent(numbers.judgement.confidence)} passes the promise, as it does for at most "
            f"{chance} promises that are kept; the verdict asks for a sign as rare as "
            f"{one_in(numbers.judgement.level)}."
        )
    return ""


def _of_accountant(kept: float, promise: Guarantee) -> str:
    """Say where a breach begins: the accountant promises more epsilon than the claimed noise gives away."""
    how = "exactly" if promise.claim.profile.gaussian_mu is not None else "at most"
    return (
        f"The dotted mark is what the claimed noise gives away, {how} {number_text(kept, 3)}. {promise.accountant} "
        f"counts it as {number_text(promise.epsilon, 3)}. The tests are about the noise, so that a breach begins at "
        "the dotted mark."
    )
