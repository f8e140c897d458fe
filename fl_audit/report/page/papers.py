"""The papers whose methods a report uses, with their DOIs: those of the methods that the run really used."""

from collections.abc import Callable

from fl_audit.evidence.findings.attacks import AttackNumbers, MembershipNumbers
from fl_audit.evidence.findings.insider import InsiderNumbers
from fl_audit.evidence.findings.pair import PairNumbers
from fl_audit.privacy.accounting import Accountant
from fl_audit.report.finding import RunContents

_IN_CSF = "IEEE Computer Security Foundations Symposium"
_IN_SP = "IEEE Symposium on Security and Privacy"
_IN_JRSSB = "Journal of the Royal Statistical Society, Series B"


def papers_of(contents: RunContents) -> list[str]:
    """Return the papers whose methods a run used, each as text."""
    return [f"{reference}. {use}. doi:{doi}" for reference, use, doi, is_used in _PAPERS if is_used(contents)]


def _has(kind: type) -> Callable[[RunContents], bool]:
    return lambda contents: contents.find(kind) is not None


def _accounts_by_renyi(contents: RunContents) -> bool:
    promise = contents.facts.guarantee
    return promise is not None and promise.accountant in (Accountant.RDP, Accountant.RDP_CLASSIC)


def _attacks_by(*names: str) -> Callable[[RunContents], bool]:
    def is_used(contents: RunContents) -> bool:
        found = contents.find(AttackNumbers)
        return found is not None and any(name in found.achieved for name in names)

    return is_used


_PAPERS: tuple[tuple[str, str, str, Callable[[RunContents], bool]], ...] = (
    ("D. Bernau, G. Eibl, P. W. Grassal, H. Keller, F. Kerschbaum (2021). Quantifying identifiability to "
          "choose and audit epsilon in differentially private deep learning. PVLDB 14(13)",
          "For the insider, the bounds on belief and advantage, and the empirical epsilon",
          "10.14778/3484224.3484231",
          lambda contents: contents.facts.has_promise),
    ("C. J. Clopper, E. S. Pearson (1934). The use of confidence or fiducial limits illustrated in the case of "
          "the binomial. Biometrika 26(4)", "For the interval of counted wins", "10.1093/biomet/26.4.404",
          _has(InsiderNumbers)),
    ("D. Negoescu et al. (2023). Epsilon*: Privacy metric for machine learning models. PPAI-24",
          "For the risk of one released model", "10.48550/arXiv.2307.11280",
          lambda contents: contents.facts.star is not None),
    ("S. Yeom, I. Giacomelli, M. Fredrikson, S. Jha (2018). Privacy risk in machine learning: Analyzing the "
          f"connection to overfitting. {_IN_CSF}", "For the membership adversary and its first bound",
          "10.1109/CSF.2018.00027", _has(MembershipNumbers)),
    ("T. Humphries et al. (2023). Investigating membership inference attacks under data dependencies. "
          f"{_IN_CSF}", "For its bound by epsilon and delta; it follows from P. Kairouz, S. Oh, P. Viswanath (2015), "
          "The composition theorem for differential privacy, ICML", "10.1109/CSF57540.2023.00013",
          _has(MembershipNumbers)),
    (f"J. Dong, A. Roth, W. J. Su (2022). Gaussian differential privacy. {_IN_JRSSB} 84(1)",
          "For the law of the log-odds and the exact advantage", "10.1111/rssb.12454",
          lambda contents: contents.facts.has_promise),
    (f"I. Waudby-Smith, A. Ramdas (2024). Estimating means of bounded random variables by betting. {_IN_JRSSB} "
          "86(1)", "For the intervals of advantage, delta and epsilon from beliefs", "10.1093/jrsssb/qkad009",
          _has(PairNumbers)),
    (f"I. Mironov (2017). Rényi differential privacy. {_IN_CSF}", "For accounting over the rounds",
          "10.1109/CSF.2017.11", _accounts_by_renyi),
    (f"R. Shokri, M. Stronati, C. Song, V. Shmatikov (2017). Membership inference attacks against machine "
          f"learning models. {_IN_SP}", "For attacks by shadow models", "10.1109/SP.2017.41", _attacks_by("shadow")),
    (f"M. Nasr, R. Shokri, A. Houmansadr (2019). Comprehensive privacy analysis of deep learning. {_IN_SP}",
          "For white-box attacks", "10.1109/SP.2019.00065",
          _attacks_by("white-box", "white-box-rounds", "active")),
    (f"N. Carlini et al. (2022). Membership inference attacks from first principles. {_IN_SP}", "For LiRA",
          "10.1109/SP46214.2022.9833649", _attacks_by("lira")),
    ("S. Zarifzadeh, P. Liu, R. Shokri (2024). Low-cost high-power membership inference attacks. ICML",
          "For RMIA", "10.48550/arXiv.2312.03262", _attacks_by("rmia")),
)  # fmt: skip
"""Authors, year and title; what it is used for; its identifier; whether a run used it."""
