"""Adaptive clipping: where the norm went, and what the two releases of a round cost."""

from fl_audit.evidence.findings.promise import ClippingNumbers, measure_clipping
from fl_audit.mechanisms.clipping import AdaptiveClipping
from fl_audit.report.finding import Row, RunContents, Section
from fl_audit.report.wording import number_text, percent


def _sentence(numbers: ClippingNumbers, contents: RunContents) -> str:
    clipping = contents.facts.game.law.clipping
    assert isinstance(clipping, AdaptiveClipping), "measured only where it is adaptive"
    return (
        f"The clipping norm follows the length that {percent(clipping.quantile)} of the updates keep within. Every "
        "round also releases how many did, with noise of its own, and the next norm moves by that. Both releases are "
        f"accounted: together they have noise multiplier {number_text(numbers.noise_multiplier, 3)}, where the sum "
        f"alone has {number_text(numbers.sum_noise_multiplier, 3)}."
    )


def _rows(numbers: ClippingNumbers, _: RunContents) -> list[Row]:
    chosen = "chosen before the run"
    return [
        Row("Clipping norm of the first round", numbers.first_norm, chosen),
        Row("Clipping norm of the last round, median", numbers.last_norm,
            "over the worlds; it follows a count with noise, so it is as private as the releases"),
        Row("Noise multiplier of the sum of updates", numbers.sum_noise_multiplier, chosen),
        Row("Noise multiplier of the count", numbers.count_noise_multiplier,
            "of the updates that are within the norm, each counted as 1/2 or -1/2"),
        Row("Noise multiplier of both releases together", numbers.noise_multiplier,
            "root of 1 / (sum of their inverse squares); Andrew et al. 2021, theorem 1"),
    ]  # fmt: skip


CLIPPING = Section(
    name="clipping-norm", title="Adaptive clipping", numbers=ClippingNumbers, measure=measure_clipping,
    keys=("clipping",), sentence=_sentence, rows=_rows,
)  # fmt: skip
