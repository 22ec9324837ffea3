"""Why the panel: what is learned on visited pages is worse on the web than what is learned on the panel."""

import pytest

from benchmarks.bias import histories, learned_from, mean_ndcg
from training.histories import models


@pytest.mark.parametrize("model", ["poisson", "brdc12-like"])
def test_learning_on_visited_pages_is_biased_and_on_the_panel_is_not(model: str) -> None:
    """Both judged on the full truth; the panel also shows how often pages change, the visited ones do not."""
    truth = models.generate(model, 4000, 60, seed=1)
    seen = histories(truth, seed=1)
    share = truth.changed[:40].mean()
    assert abs(seen["panel"].changed.mean() - share) < 0.25 * share
    assert seen["visited pages only"].changed.mean() > 3.0 * share
    biased, unbiased = (
        mean_ndcg(truth, learned_from(seen[name], 1)) for name in ("visited pages only", "panel")
    )
    assert unbiased > biased + 0.02
