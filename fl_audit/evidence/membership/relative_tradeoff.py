"""phi of Bernau et al. 2019: the relative gain in privacy over the relative loss of accuracy."""

import math

from fl_audit.errors import require

LARGEST_PHI = 2.0  # where the paper cuts phi off


def relative_tradeoff(auc_without: float, auc: float, accuracy_without: float, accuracy: float, classes: int) -> float:
    """Return phi, from 0 to 2: above 1 where privacy gained relatively more than accuracy lost.

    Parameters
    ----------
    auc_without
        Area under the ROC of a membership attack on the model without differential privacy, from 0 to 1.
    auc
        The same of the model with differential privacy.
    accuracy_without, accuracy
        Their test accuracy, from 0 to 1.
    classes
        Number of classes, at least 2; 1 / classes is the accuracy of guessing.

    Returns
    -------
    float
        phi = max(0, AUC_o - AUC) (ACC_o - 1/C) / (max(0, ACC_o - ACC) (AUC_o - 1/2)), cut off at 2. Where accuracy was
        not lost the paper sets 2. NaN where there was nothing to lose: the attack on the model without privacy was no
        better than guessing, or that model was not.

    Raises
    ------
    InputError
        If a number is out of its range.

    Notes
    -----
    Source: Bernau, Grassal, Robl & Kerschbaum 2019, Assessing differentially private deep learning with membership
    inference, section on the relative privacy-accuracy trade-off.

    Examples
    --------
    >>> relative_tradeoff(auc_without=0.75, auc=0.5, accuracy_without=0.9, accuracy=0.6, classes=2)
    1.3333333333333333
    """
    for value, name in ((auc_without, "AUC"), (auc, "AUC"), (accuracy_without, "accuracy"), (accuracy, "accuracy")):
        require(0 <= value <= 1, f"{name} is {value}: accepted are numbers from 0 to 1")
    require(classes >= 2, f"number of classes is {classes}: accepted are whole numbers from 2")
    to_lose, leak = accuracy_without - 1 / classes, auc_without - 0.5
    if to_lose <= 0 or leak <= 0:
        return math.nan
    lost = max(0.0, accuracy_without - accuracy) * leak
    if lost == 0:
        return LARGEST_PHI
    return min(LARGEST_PHI, max(0.0, auc_without - auc) * to_lose / lost)
