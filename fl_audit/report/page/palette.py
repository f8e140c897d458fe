"""The colours of every page, light and dark, and which text stands on which ground."""

LIGHT = {
    "paper": "#ffffff",
    "pale": "#f4f4f2",
    "ink": "#1a1a1a",
    "muted": "#555555",
    "line": "#bbbbbb",
    "good": "#17492b",
    "good-ground": "#f1f8f3",
    "bad": "#ffffff",
    "bad-ground": "#7a0c0c",
    "open": "#474747",
    "open-ground": "#efefef",
    "label": "#1a1a1a",
    "label-ground": "#fff6e0",
    "shown": "#12426e",
    "beyond": "#7a0c0c",
    "sought": "#b35806",
}
"""By name, what a page looks like on a light screen and on paper."""

DARK = {
    "paper": "#161616",
    "pale": "#232323",
    "ink": "#ececec",
    "muted": "#b4b4b4",
    "line": "#5a5a5a",
    "good": "#a9dfbd",
    "good-ground": "#12291b",
    "bad": "#ffffff",
    "bad-ground": "#8c1616",
    "open": "#d2d2d2",
    "open-ground": "#2b2b2b",
    "label": "#fbeccb",
    "label-ground": "#3a2f14",
    "shown": "#8ab6e0",
    "beyond": "#f08a8a",
    "sought": "#e8a765",
}
"""The same on a dark screen."""

TEXT_ON_GROUND = (
    ("ink", "paper"),
    ("muted", "paper"),
    ("ink", "pale"),
    ("ink", "good-ground"),
    ("good", "good-ground"),
    ("bad", "bad-ground"),
    ("ink", "open-ground"),
    ("open", "open-ground"),
    ("label", "label-ground"),
)
"""Every pair of a text's colour and the ground that it stands on: each has a contrast of 4.5 or more."""


def css_variables(colours: dict[str, str]) -> str:
    """Return colours as declarations of CSS variables."""
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())
