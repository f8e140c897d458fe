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
    "grid": "#dddddd",
    "band": "#e9e9e9",
    "one": "#12426e",
    "one-fill": "#7fa3c7",
    "two": "#b35806",
    "two-fill": "#f8d9b0",
    "three": "#4d7a2a",
    "four": "#7a3b69",
    "five": "#2a7f86",
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
    "grid": "#3a3a3a",
    "band": "#333333",
    "one": "#8ab6e0",
    "one-fill": "#35587c",
    "two": "#e8a765",
    "two-fill": "#5c3d18",
    "three": "#a3d17c",
    "four": "#d99cc6",
    "five": "#7fced5",
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


DRAWN = {
    "#ffffff": "paper",
    "#1a1a1a": "ink",
    "#5c5c5c": "muted",
    "#dddddd": "grid",
    "#e9e9e9": "band",
    "#12426e": "one",
    "#7fa3c7": "one-fill",
    "#b35806": "two",
    "#f8d9b0": "two-fill",
    "#4d7a2a": "three",
    "#7a3b69": "four",
    "#2a7f86": "five",
}
"""What stands on a page for the colours that figures are drawn in."""


def css_variables(colours: dict[str, str]) -> str:
    """Return colours as declarations of CSS variables."""
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())
