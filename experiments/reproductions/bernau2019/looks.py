"""How the data sets, kinds of privacy and numbers of classes of Bernau et al. 2019 are told apart without colours."""

from experiments.reproductions.bernau2019.published import Study
from experiments.reproductions.bernau2019.settings import Method
from experiments.reproductions.looks import Look

STUDY_LOOKS = {
    Study.TEXAS: Look("Texas", "#12426e", "#b9d0e6", "-", "o", ""),
    Study.PURCHASES: Look("Purchases", "#b35806", "#f8d9b0", "--", "^", "////"),
    Study.COLLAB: Look("COLLAB", "#1a1a1a", "#cccccc", "-.", "s", "...."),
    Study.LFW: Look("LFW", "#1b7837", "#c7e5c9", ":", "v", "xxxx"),
    Study.SKEWED: Look("Skewed Purchases", "#762a83", "#e3cce8", "-", "P", "\\\\\\\\"),
}
"""Each data set of the paper."""

CLASS_LOOKS = (
    Look("", "#12426e", "#b9d0e6", "-", "o", ""),
    Look("", "#b35806", "#f8d9b0", "--", "^", "////"),
    Look("", "#1b7837", "#c7e5c9", "-.", "s", "...."),
    Look("", "#762a83", "#e3cce8", ":", "D", "xxxx"),
)
"""Forms of a data set with different numbers of classes, in the order in which they are drawn."""

METHOD_LOOKS = {
    Method.CENTRAL: Look("central DP", "#12426e", "#b9d0e6", "-", "o", ""),
    Method.LOCAL: Look("local DP", "#b35806", "#f8d9b0", "--", "^", "////"),
}
"""The two kinds of privacy."""

LEVEL_LOOKS = (
    Look("", "#1a1a1a", "", "-", "", ""),
    Look("", "#12426e", "", "--", "", ""),
    Look("", "#b35806", "", "-.", "", ""),
    Look("", "#1b7837", "", ":", "", ""),
    Look("", "#762a83", "", "-", "", ""),
    Look("", "#7f7f7f", "", "--", "", ""),
)
"""The original model, then falling epsilon."""
