"""The verdict of a run as a badge: a small SVG image for a web page or a repository."""

from collections.abc import Mapping
from typing import Any

from fl_audit.report.guarantee_warnings import is_weak

# By verdict, named as summaries do: its enumeration takes a second to import. White has a contrast of 4.5 on each.
_COLOURS = {"consistent": "#1a7f37", "violated": "#b3261e"}
_GREY = "#57606a"
_LABEL = "privacy audit"
_LETTER = 6.6  # width of a letter of 11 pixels, on average


def badge(summary: Mapping[str, Any]) -> str:
    """Return an SVG image with the verdict of a run and its claimed epsilon, if any, from its `summary.json`.

    If a run is consistent with a guarantee that assures next to nothing, the badge says so and is grey.
    """
    verdict = str(summary["verdict"])
    guarantee = summary.get("guarantee") or {}
    epsilon = guarantee.get("epsilon")
    belief = guarantee.get("belief_bound")
    text = verdict + ("" if epsilon is None else f", epsilon {epsilon:.2g}")
    colour = _COLOURS.get(verdict, _GREY)
    if (
        verdict == "consistent"
        and belief is not None
        and is_weak(belief, guarantee.get("advantage_bound") or 0.0, guarantee.get("prior") or 0.5)
    ):
        text = f"{text}: assures next to nothing"
        colour = _GREY
    left_width, right_width = (round(_LETTER * len(text_part)) + 12 for text_part in (_LABEL, text))
    title = f"{_LABEL}: {text}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left_width + right_width}" height="20" '
        f'role="img" aria-label="{title}">'
        f"<title>{title}</title>"
        f'<rect width="{left_width}" height="20" fill="#333"/>'
        f'<rect x="{left_width}" width="{right_width}" height="20" fill="{colour}"/>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{left_width / 2:g}" y="14">{_LABEL}</text>'
        f'<text x="{left_width + right_width / 2:g}" y="14">{text}</text></g></svg>\n'
    )
