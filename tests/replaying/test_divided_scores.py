"""Divided score expressions score as whole ones."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.scoring import functions, terminals
from scrapy_gp4c.scoring.expression import PRIMITIVES, Expression
from training.replaying.divided_scores import divided

NAMES = ("n", "X", "t", "sad", "near", "site_now", "spent", "random", "rate_site", "cluster_recent")
LEAVES = st.one_of(st.sampled_from(NAMES), st.sampled_from([0.0, 0.5, -3.0, 1e300]))


def _trees(inner):
    def of(name):
        return st.tuples(*[inner] * PRIMITIVES[name].arity).map(
            lambda parts: (name, *(token for part in parts for token in part))
        )

    return st.sampled_from(sorted(PRIMITIVES)).flatmap(of)


TREES = st.recursive(LEAVES.map(lambda leaf: (leaf,)), _trees, max_leaves=12)


@given(tokens=TREES, seed=st.integers(0, 2**32))
def test_the_parts_put_together_score_as_the_whole(tokens, seed):
    """Bit for bit."""
    function = functions.of_expression(Expression(tokens))
    parts_of_function = divided(function)
    rng = np.random.default_rng(seed)
    state = {name: rng.integers(0, 5, 7).astype(dtype) for name, dtype in terminals.STATE.items()}
    state |= {name: rng.random(7) for name in terminals.ROUND} | {"draw": rng.integers(0, 9, 7)}
    values = {
        name: parts_of_function.value(name, level, state, 9)
        for level, parts in parts_of_function.parts.items()
        for name in parts
    }
    out = np.empty(7)
    parts_of_function.finish(values, state, 9, out)
    assert out.tobytes() == function.scores(state, 9).tobytes()
