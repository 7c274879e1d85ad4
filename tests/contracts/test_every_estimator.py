"""scikit-learn's own checks, on every estimator."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from gated_domains.estimators import ERMClassifier, ERMRegressor, GDUClassifier, GDURegressor

# Bad input is answered as users see it; and degenerate data leave gates with nothing to tell apart, which is said.
pytestmark = [
    pytest.mark.usefixtures("without_shape_checks"),
    pytest.mark.filterwarnings("ignore::gated_domains.layer.GateWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]

ESTIMATORS = [GDUClassifier(), GDURegressor(), ERMClassifier(), ERMRegressor()]


BY_CHANCE = (
    "bases are drawn from the rows by chance, as the centres of k-means are: the same rows with weights and repeated "
    "rows give other draws, and so other gates"
)


def expected_failures(estimator: object) -> dict[str, str]:
    if not isinstance(estimator, (GDUClassifier, GDURegressor)):
        return {}
    return {
        "check_sample_weight_equivalence_on_dense_data": BY_CHANCE,
        "check_sample_weight_equivalence_on_sparse_data": BY_CHANCE,
    }


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failures)
def test_estimator_keeps_to_scikit_learns_manners(estimator, check):
    check(estimator)
