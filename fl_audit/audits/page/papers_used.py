"""The papers whose methods a run used, for the end of its report."""

from collections.abc import Callable

from fl_audit.audits.identifiability.sections_insider import InsiderFinding
from fl_audit.audits.membership.attacks.registry import attack_named
from fl_audit.audits.membership.findings_attacks import AllAttacksFinding
from fl_audit.audits.membership.sections_membership_adversary import FinalModelMembershipFinding
from fl_audit.privacy.accounting import Accountant
from fl_audit.report.report_elements import ReportContents

_IN_CSF = "IEEE Computer Security Foundations Symposium"
_IN_JRSSB = "Journal of the Royal Statistical Society, Series B"


def papers_of(contents: ReportContents) -> list[str]:
    """Return the papers whose methods a run used, each as a line with reference, use and DOI."""
    papers = [(citation, use, doi) for citation, use, doi, is_used in _PAPERS if is_used(contents)]
    return [f"{citation}. {use}. doi:{doi}" for citation, use, doi in (*papers, *_papers_of_parts(contents))]


def _papers_of_parts(contents: ReportContents) -> list[tuple[str, str, str]]:
    """Return the papers of the noise and of the attacks that have results, each once: citation, use and DOI."""
    finding = contents.find(AllAttacksFinding)
    attacks = [] if finding is None else [attack_named(name).paper for name in finding.outsiders]
    papers = (contents.plan.federation.mechanism.noise.paper, *attacks)
    return [(paper.citation, paper.use, paper.identifier) for paper in dict.fromkeys(papers) if paper is not None]


def _has(kind: type) -> Callable[[ReportContents], bool]:
    return lambda contents: contents.find(kind) is not None


def _accounts_by_renyi(contents: ReportContents) -> bool:
    guarantee = contents.plan.guarantee
    return guarantee is not None and guarantee.accountant in (Accountant.RDP, Accountant.RDP_CLASSIC)


_PAPERS: tuple[tuple[str, str, str, Callable[[ReportContents], bool]], ...] = (
    (
        "D. Bernau, G. Eibl, P. W. Grassal, H. Keller, F. Kerschbaum (2021). Quantifying identifiability to "
        "choose and audit epsilon in differentially private deep learning. PVLDB 14(13)",
        "For the insider, the bounds on belief and advantage, and the empirical epsilon",
        "10.14778/3484224.3484231",
        lambda contents: contents.plan.has_guarantee,
    ),
    (
        "C. J. Clopper, E. S. Pearson (1934). The use of confidence or fiducial limits illustrated in the case of "
        "the binomial. Biometrika 26(4)",
        "For the interval of counted wins",
        "10.1093/biomet/26.4.404",
        _has(InsiderFinding),
    ),
    (
        "D. Negoescu et al. (2023). Epsilon*: Privacy metric for machine learning models. PPAI-24",
        "For the risk of one released model",
        "10.48550/arXiv.2307.11280",
        lambda contents: contents.plan.star is not None,
    ),
    (
        "S. Yeom, I. Giacomelli, M. Fredrikson, S. Jha (2018). Privacy risk in machine learning: Analyzing the "
        f"connection to overfitting. {_IN_CSF}",
        "For the membership adversary and its first bound",
        "10.1109/CSF.2018.00027",
        _has(FinalModelMembershipFinding),
    ),
    (
        f"T. Humphries et al. (2023). Investigating membership inference attacks under data dependencies. {_IN_CSF}",
        "For its bound by epsilon and delta; it follows from P. Kairouz, S. Oh, P. Viswanath (2015), "
        "The composition theorem for differential privacy, ICML",
        "10.1109/CSF57540.2023.00013",
        _has(FinalModelMembershipFinding),
    ),
    (
        f"J. Dong, A. Roth, W. J. Su (2022). Gaussian differential privacy. {_IN_JRSSB} 84(1)",
        "For the distribution of the log-odds and the exact advantage",
        "10.1111/rssb.12454",
        lambda contents: contents.plan.has_guarantee and contents.plan.federation.mechanism.noise.has_gaussian_llr,
    ),
    (
        f"I. Waudby-Smith, A. Ramdas (2024). Estimating means of bounded random variables by betting. {_IN_JRSSB} "
        "86(1)",
        "For the interval of the mean advantage of the membership adversary",
        "10.1093/jrsssb/qkad009",
        _has(FinalModelMembershipFinding),
    ),
    (
        f"I. Mironov (2017). Rényi differential privacy. {_IN_CSF}",
        "For accounting over the rounds",
        "10.1109/CSF.2017.11",
        _accounts_by_renyi,
    ),
)
"""Papers: authors, year and title; their use here; the identifier; and whether a run used the paper.

A noise and attacks name their papers themselves."""
