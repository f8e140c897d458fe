"""The papers whose methods a report uses."""

PAPERS = (
    "D. Bernau, G. Eibl, P. W. Grassal, H. Keller, F. Kerschbaum (2021). Quantifying identifiability to choose and "
    "audit epsilon in differentially private deep learning. PVLDB 14(13). For the insider, the bounds on belief and "
    "advantage, and the empirical epsilon.",
    "D. Negoescu et al. (2023). Epsilon*: Privacy metric for machine learning models. PPAI-24. For the risk of one "
    "released model.",
    "S. Yeom, I. Giacomelli, M. Fredrikson, S. Jha (2018). Privacy risk in machine learning: Analyzing the connection "
    "to overfitting. IEEE Computer Security Foundations Symposium. For the membership adversary and its first bound.",
    "T. Humphries et al. (2023). Investigating membership inference attacks under data dependencies. IEEE Computer "
    "Security Foundations Symposium. For its bound by epsilon and delta; it follows from P. Kairouz, S. Oh, "
    "P. Viswanath (2015), The composition theorem for differential privacy, ICML.",
    "J. Dong, A. Roth, W. J. Su (2022). Gaussian differential privacy. Journal of the Royal Statistical Society, "
    "Series B 84(1). For the law of the log-odds and the exact advantage.",
    "I. Waudby-Smith, A. Ramdas (2024). Estimating means of bounded random variables by betting. Journal of the Royal "
    "Statistical Society, Series B 86(1). For the intervals of advantage, delta and epsilon from beliefs.",
    "I. Mironov (2017). Rényi differential privacy. IEEE Computer Security Foundations Symposium. For accounting over "
    "the rounds.",
)
"""The papers whose methods a report uses."""
