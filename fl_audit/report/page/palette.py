"""The colours of every page, light and dark, and which text stands on which ground."""

COLOURS = {
    "paper": ("#ffffff", "#161616"),
    "pale": ("#f4f4f2", "#232323"),
    "ink": ("#1a1a1a", "#ececec"),
    "muted": ("#555555", "#b4b4b4"),
    "line": ("#bbbbbb", "#5a5a5a"),
    "good": ("#17492b", "#a9dfbd"),
    "good-ground": ("#f1f8f3", "#12291b"),
    "bad": ("#ffffff", "#ffffff"),
    "bad-ground": ("#7a0c0c", "#8c1616"),
    "open": ("#474747", "#d2d2d2"),
    "open-ground": ("#efefef", "#2b2b2b"),
    "label": ("#1a1a1a", "#fbeccb"),
    "label-ground": ("#fff6e0", "#3a2f14"),
    "shown": ("#12426e", "#8ab6e0"),
    "beyond": ("#7a0c0c", "#f08a8a"),
    "grid": ("#dddddd", "#3a3a3a"),
    "band": ("#e9e9e9", "#333333"),
    "one": ("#12426e", "#8ab6e0"),
    "one-fill": ("#7fa3c7", "#35587c"),
    "two": ("#b35806", "#e8a765"),
    "two-fill": ("#f8d9b0", "#5c3d18"),
    "three": ("#4d7a2a", "#a3d17c"),
    "four": ("#7a3b69", "#d99cc6"),
    "five": ("#2a7f86", "#7fced5"),
}
"""By name, what a page looks like on a light screen and on paper, and on a dark screen."""
LIGHT, DARK = ({name: pair[side] for name, pair in COLOURS.items()} for side in (0, 1))

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
