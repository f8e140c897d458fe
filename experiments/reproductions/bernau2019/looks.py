"""How the data sets, kinds of privacy and numbers of classes of Bernau et al. 2019 are told apart without colours."""

from experiments.reproductions.bernau2019.published import MembershipStudy
from experiments.reproductions.bernau2019.settings import Method
from experiments.reproductions.looks import CurveLook

STUDY_LOOKS = {
    MembershipStudy.TEXAS: CurveLook("Texas", "#12426e", "#b9d0e6", "-", "o", ""),
    MembershipStudy.PURCHASES: CurveLook("Purchases", "#b35806", "#f8d9b0", "--", "^", "////"),
    MembershipStudy.COLLAB: CurveLook("COLLAB", "#1a1a1a", "#cccccc", "-.", "s", "...."),
    MembershipStudy.LFW: CurveLook("LFW", "#1b7837", "#c7e5c9", ":", "v", "xxxx"),
    MembershipStudy.SKEWED: CurveLook("Skewed Purchases", "#762a83", "#e3cce8", "-", "P", "\\\\\\\\"),
}
"""Each data set of the paper."""

CLASS_LOOKS = (
    CurveLook("", "#12426e", "#b9d0e6", "-", "o", ""),
    CurveLook("", "#b35806", "#f8d9b0", "--", "^", "////"),
    CurveLook("", "#1b7837", "#c7e5c9", "-.", "s", "...."),
    CurveLook("", "#762a83", "#e3cce8", ":", "D", "xxxx"),
)
"""Forms of a data set with different numbers of classes, in the order in which they are drawn."""

METHOD_LOOKS = {
    Method.CENTRAL: CurveLook("central DP", "#12426e", "#b9d0e6", "-", "o", ""),
    Method.LOCAL: CurveLook("local DP", "#b35806", "#f8d9b0", "--", "^", "////"),
}
"""The two kinds of privacy."""

LEVEL_LOOKS = (
    CurveLook("", "#1a1a1a", "", "-", "", ""),
    CurveLook("", "#12426e", "", "--", "", ""),
    CurveLook("", "#b35806", "", "-.", "", ""),
    CurveLook("", "#1b7837", "", ":", "", ""),
    CurveLook("", "#762a83", "", "-", "", ""),
    CurveLook("", "#7f7f7f", "", "--", "", ""),
)
"""The original model, then falling epsilon."""
