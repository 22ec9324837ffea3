"""Score functions typeset as MathML and drawn as trees (inline SVG)."""

from __future__ import annotations

from html import escape
from typing import Final, NamedTuple

from markupsafe import Markup

from scrapy_gp4c.scoring.expression import Token, parse
from scrapy_gp4c.scoring.primitives import PRIMITIVES
from scrapy_gp4c.scoring.terminals import PAPERS
from training.evolution.simplification import readable

SIGNS: Final = {"+": "+", "-": "−", "*": "·", "/": "÷", "div": "÷", "neg": "−", "pow": "xʸ", "sqrt": "√"}
STEP_PX: Final = 62.0
LEVEL_PX: Final = 54.0


class Node(NamedTuple):
    """A node of the expression tree."""

    token: Token
    children: tuple[Node, ...]


def tree_of(text: str) -> Node:
    """The tree of an expression, its constants rounded to 4 digits. Raises ExpressionError."""
    stack: list[Node] = []
    for token in reversed(parse(readable(text)).tokens):
        arity = PRIMITIVES[token].arity if token in PRIMITIVES else 0
        stack.append(Node(token, tuple(stack.pop() for _ in range(arity))))
    return stack.pop()


def size(node: Node) -> int:
    """Number of nodes."""
    return 1 + sum(size(child) for child in node.children)


def mathml(text: str, name: str = "score") -> Markup:
    """Typeset ``name = expression``."""
    body = f"<mi>{escape(name)}</mi><mo>=</mo>" if name else ""
    return Markup(
        f'<math display="block" aria-label="{escape(readable(text))}"><mrow>{body}{_math(tree_of(text))[0]}'
        "</mrow></math>"
    )


def _math(node: Node) -> tuple[str, int]:
    """MathML of a node and its binding strength, as in `scrapy_gp4c.scoring.primitives`."""
    token = node.token
    if isinstance(token, float):
        return _number(token)
    if token not in PRIMITIVES:
        return _terminal(token), 9
    inner = [_math(child) for child in node.children]
    match token:
        case "/" | "div":
            return f"<mfrac><mrow>{inner[0][0]}</mrow><mrow>{inner[1][0]}</mrow></mfrac>", 8
        case "pow":
            return f"<msup><mrow>{_closed(inner[0], 9)}</mrow><mrow>{inner[1][0]}</mrow></msup>", 8
        case "exp":
            return f"<msup><mi>e</mi><mrow>{inner[0][0]}</mrow></msup>", 8
        case "sqrt":
            return f"<msqrt><mrow>{inner[0][0]}</mrow></msqrt>", 9
        case "abs":
            return f"<mrow><mo>|</mo>{inner[0][0]}<mo>|</mo></mrow>", 9
        case "neg":
            return f"<mrow><mo>−</mo>{_closed(inner[0], 2)}</mrow>", 0
        case "+" | "-" | "*":
            strength = PRIMITIVES[token].infix
            strength_left = 0 if strength == 1 else strength  # a leading minus sign needs no parentheses
            right = strength + (token == "-")
            arguments = f"{_closed(inner[0], strength_left)}<mo>{SIGNS[token]}</mo>{_closed(inner[1], right)}"
            return f"<mrow>{arguments}</mrow>", strength
    name = {"log": "ln"}.get(token, token)
    arguments = "<mo>,</mo>".join(text for text, _ in inner)
    return f"<mrow><mi>{name}</mi><mo>(</mo>{arguments}<mo>)</mo></mrow>", 9


def _closed(inner: tuple[str, int], strength: int) -> str:
    text, binding = inner
    return f"<mrow><mo>(</mo>{text}<mo>)</mo></mrow>" if binding < strength else text


def _number(value: float) -> tuple[str, int]:
    mantissa, _, exponent = f"{abs(value):g}".partition("e")
    text = f"<mn>{mantissa}</mn>"
    if exponent:
        text = f"<mrow>{text}<mo>·</mo><msup><mn>10</mn><mn>{int(exponent)}</mn></msup></mrow>"
        strength = 2
    else:
        strength = 9
    return (f"<mrow><mo>−</mo>{text}</mrow>", 0) if value < 0 else (text, strength)


def _terminal(name: str) -> str:
    base, _, suffix = name.partition("_")
    if suffix == "rate" and base in PAPERS:  # the rate in 1 - exp(-rate * t) of Tan and Mitra
        return f'<msub><mi>λ</mi><mi mathvariant="normal">{escape(base.upper())}</mi></msub>'
    return f"<mi>{escape(name if len(name) == 1 else name.upper())}</mi>"


def tree(text: str) -> Markup:
    """Draw the expression tree: operators round, terminals filled, constants plain."""
    root = tree_of(text)
    placed: list[tuple[Node, float, int, float | None]] = []
    width = 0.0

    def draw_node(node: Node, level: int) -> float:
        nonlocal width
        index = len(placed)
        placed.append((node, 0.0, level, None))
        if node.children:
            xs = [draw_node(child, level + 1) for child in node.children]
            x = (xs[0] + xs[-1]) / 2
        else:
            room = max(STEP_PX, 2 * _half(_label(node)[1]) + 12)
            x = width + room / 2
            width += room
        placed[index] = (node, x, level, None)
        return x

    draw_node(root, 0)
    position = {id(node): (x, 24 + level * LEVEL_PX) for node, x, level, _ in placed}
    depth = max(level for _, _, level, _ in placed)
    edges, nodes = [], []
    for node, *_ in placed:
        x, y = position[id(node)]
        for child in node.children:
            to = position[id(child)]
            edges.append(f'<path class="edge" d="M{x:.1f} {y:.1f}L{to[0]:.1f} {to[1]:.1f}"/>')
        nodes.append(_box(node, x, y))
    names = escape(readable(text))
    height = 48 + depth * LEVEL_PX
    return Markup(
        f'<svg class="tree" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" '
        f'role="img" aria-label="Expression tree of {names}">{"".join(edges)}{"".join(nodes)}</svg>'
    )


def _label(node: Node) -> tuple[str, str]:
    """Kind of a node, and what is written in it."""
    token = node.token
    if isinstance(token, float):
        return "constant", f"{token:.4g}".replace("-", "−")
    if token in PRIMITIVES:
        return "operator", {"*": "×", "log": "ln"}.get(token, SIGNS.get(token, token))
    return "terminal", token


def _half(text: str) -> float:
    """Half the width of a node."""
    return max(16.0, 4.0 + 4.2 * len(text))


def _box(node: Node, x: float, y: float) -> str:
    kind, text = _label(node)
    half = _half(text)
    return (
        f'<g class="node {kind}"><rect x="{x - half:.1f}" y="{y - 15:.1f}" width="{2 * half:.1f}" '
        f'height="30" rx="{15 if kind == "operator" else 6}"/>'
        f'<text x="{x:.1f}" y="{y + 5:.1f}" text-anchor="middle">{escape(text)}</text></g>'
    )
