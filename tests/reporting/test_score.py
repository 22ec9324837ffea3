"""Typeset formulas and drawn trees, against the expressions they show."""

import itertools
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.scoring.expression import PRIMITIVES, Expression, Token, parse
from training.evolution.evolve import readable
from training.reporting import score as formula

leaves = st.sampled_from(("n", "X", "t", "cg", "nad_rate")) | st.floats(-1e6, 1e6).map(
    lambda x: float(f"{x:.4g}")
)


def node(children: st.SearchStrategy[tuple[Token, ...]]) -> st.SearchStrategy[tuple[Token, ...]]:
    """A primitive over as many subtrees as it takes."""
    return st.sampled_from(sorted(PRIMITIVES)).flatmap(
        lambda name: st.tuples(*[children] * PRIMITIVES[name].arity).map(
            lambda parts: (name, *(token for part in parts for token in part))
        )
    )


programs = st.recursive(leaves.map(lambda leaf: (leaf,)), node, max_leaves=12)


def text_of(markup: str) -> str:
    """The characters of a formula, without spaces."""
    return "".join("".join(ElementTree.fromstring(markup).itertext()).split())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("t * (X + 0.5)", "t·(X+0.5)"),
        ("t * X + n", "t·X+n"),
        ("(t + X) * n", "(t+X)·n"),
        ("t - (X - n)", "t−(X−n)"),
        ("t - X - n", "t−X−n"),
        ("t - -2.0", "t−(−2)"),
        ("-(t + X)", "−(t+X)"),
        ("log(X)", "ln(X)"),
        ("max(t, cg)", "max(t,CG)"),
        ("abs(t - n)", "|t−n|"),
        ("t + 1e-05", "t+1·10-5"),
        ("nad_rate * sad", "λNAD·SAD"),
        ("hint_rate * size_lift", "HINT_RATE·SIZE_LIFT"),
    ],
)
def test_on_one_line(text: str, shown: str) -> None:
    """Parentheses stand where they are needed, and only there."""
    assert text_of(formula.mathml(text, "")) == shown


@pytest.mark.parametrize(
    ("text", "element", "parts"),
    [
        ("(t + X) / (n + 1.0)", "mfrac", ("t+X", "n+1")),
        ("pow(t, X + 1.0)", "msup", ("t", "X+1")),
        ("pow(t + n, X)", "msup", ("(t+n)", "X")),
        ("exp(t * X)", "msup", ("e", "t·X")),
        ("sqrt(t + X)", "msqrt", ("t+X",)),
    ],
)
def test_in_two_dimensions(text: str, element: str, parts: tuple[str, ...]) -> None:
    """Fractions, powers and roots group by their shape."""
    root = ElementTree.fromstring(formula.mathml(text, ""))
    result = next(root.iter(element))
    assert tuple("".join("".join(part.itertext()).split()) for part in result) == parts


def test_a_power_of_a_power_or_fraction_is_enclosed() -> None:
    """The base of a power is closed, so that exponents do not pile up."""
    assert text_of(formula.mathml("pow(pow(t, X), n)", "")) == "(tX)n"
    assert text_of(formula.mathml("pow(t / X, n)", "")) == "(tX)n"
    assert text_of(formula.mathml("pow(-2.0, n)", "")) == "(−2)n"


@given(programs)
def test_any_expression_can_be_shown(tokens: tuple[Token, ...]) -> None:
    """MathML and tree are well formed; the tree has one node per token and one edge less."""
    text = Expression(tokens).text
    ElementTree.fromstring(formula.mathml(text))
    root = ElementTree.fromstring(formula.tree(text))
    count = len(parse(readable(text)).tokens)
    assert len(root.findall("g")) == count
    assert len(root.findall("path")) == count - 1


@given(programs)
def test_nodes_of_a_tree_do_not_touch(tokens: tuple[Token, ...]) -> None:
    """Boxes of one level lie beside each other, inside the drawing."""
    root = ElementTree.fromstring(formula.tree(Expression(tokens).text))
    width = float(root.get("width", "0"))
    boxes: dict[str, list[tuple[float, float]]] = {}
    for box in root.iter("rect"):
        x = float(box.get("x", "0"))
        boxes.setdefault(box.get("y", ""), []).append((x, x + float(box.get("width", "0"))))
    for level in boxes.values():
        ordered = sorted(level)
        assert all(one[1] <= two[0] + 0.2 for one, two in itertools.pairwise(ordered))
        assert ordered[0][0] >= -0.2
        assert ordered[-1][1] <= width + 0.2
