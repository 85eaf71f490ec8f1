"""Solvers of tasks: algebra and geometry."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from .solution import Property, Solution, Solver, UnreadableQuestionError

if TYPE_CHECKING:
    import sympy

_NUMBER = r"-?\d+(?:\.\d+)?"
_FUNCTIONS = (
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "exp",
    "log",
    "sqrt",
    "Abs",
    "E",
    "pi",
)
_Point = tuple[Fraction, Fraction]


def _search(pattern: str, question: str) -> re.Match[str]:
    """Return the match of a pattern.

    Raises:
        UnreadableQuestionError: there is none.
    """
    found = re.search(pattern, question)
    if not found:
        raise UnreadableQuestionError(f"no match of {pattern!r} in {question[:80]!r}")
    return found


def _number(text: str) -> Fraction | None:
    """Return the number that a text is, or None."""
    text = text.strip().removesuffix("°").strip()
    return (
        Fraction(text)
        if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e\+?\d{1,3})?", text)
        else None
    )


def _is_number(text: str, right: Fraction) -> bool:
    return _number(text) == right


def _solution(
    accepts: Callable[[str], bool], right: Sequence[str], near: Sequence[str]
) -> Solution:
    """Return a solution whose wrong answers are those near ones that are not right by chance."""
    wrong = [text for text in near if not accepts(text)]
    return Solution(accepts=accepts, right=list(dict.fromkeys(right)), wrong=wrong)


def _decimal(value: Fraction | float) -> str:
    """Return a number with as many decimals as it needs, at least one."""
    return repr(float(value)) if float(value) == value else f"{int(value)}.0"


def _expression(text: str, variable: str) -> sympy.Expr:
    """Return the expression that a text is, in one variable and C.

    Raises:
        ValueError: it has other names, a power of two numbers, or is not an expression.
    """
    from sympy import Expr, Symbol
    from sympy.parsing.sympy_parser import parse_expr

    names = set(re.findall(r"[A-Za-z_]\w*", text))
    plain = re.fullmatch(r"[\w\s+\-*/().]+", text)
    if (
        not plain
        or names - {*_FUNCTIONS, variable, "C"}
        or re.search(r"\d\s*\*\*\s*-?\d", text)
    ):
        raise ValueError(f"not a plain expression in {variable}: {text[:80]}")
    symbols: dict[str, Any] = {variable: Symbol(variable), "C": Symbol("C")}
    try:
        parsed = parse_expr(text, local_dict=symbols)
    except (SyntaxError, TypeError, AttributeError) as error:
        raise ValueError(f"not an expression: {text[:80]}") from error
    if not isinstance(parsed, Expr):
        raise ValueError(f"not an expression: {text[:80]}")
    return parsed


def _complex(text: str) -> tuple[Fraction, Fraction] | None:
    """Return the real and imaginary part of a complex number in the form `a + bi`."""
    plain = re.sub(r"\s+", "", text)
    imaginary = re.search(
        r"(?:^|(?<=[\d.])(?=[+-]))([+-]?)(\d*\.?\d*(?:e\+?\d+)?)i$", plain
    )
    rest = plain[: imaginary.start()] if imaginary else plain
    real = _number(rest) if rest else Fraction(0)
    if real is None or not plain:
        return None
    if not imaginary:
        return real, Fraction(0)
    return real, Fraction(f"{imaginary[1]}{imaginary[2] or 1}")


def _complex_text(
    real: Fraction, imaginary: Fraction, number: Callable[[Fraction], str]
) -> str:
    if not imaginary:
        return number(real)
    sign = "-" if imaginary < 0 else "+"
    return f"{number(real)} {sign} {number(abs(imaginary))}i"


def complex_arithmetic(question: str) -> Solution:
    """Solve exactly, by fractions."""
    found = _search(r": \((.+?)\) ([-+\u00d7÷]) \((.+?)\)\s*$", question)
    left, right = _complex(found[1]), _complex(found[3])
    if left is None or right is None:
        raise UnreadableQuestionError(f"no complex numbers: {found[0]}")
    (a, b), (c, d) = left, right
    norm = c * c + d * d
    exact = {
        "+": lambda: (a + c, b + d),
        "-": lambda: (a - c, b - d),
        "\N{MULTIPLICATION SIGN}": lambda: (a * c - b * d, a * d + b * c),
        "÷": lambda: ((a * c + b * d) / norm, (b * c - a * d) / norm),
    }[found[2]]()

    def accepts(text: str) -> bool:
        given = _complex(text)
        return given is not None and all(
            abs(mine - part) <= Fraction(1, 10**6)
            for mine, part in zip(given, exact, strict=True)
        )

    real, imaginary = round(exact[0]), round(exact[1])
    if not accepts(f"{real} + {imaginary}i".replace("+ -", "- ")):
        return Solution(accepts=accepts, right=[_complex_text(*exact, _decimal)])
    parts = Fraction(real), Fraction(imaginary)
    forms = [_complex_text(*parts, _decimal), _complex_text(*parts, str)]
    near = [
        (real, -imaginary),
        (-real, imaginary),
        (imaginary, real),
        (real + 1, imaginary),
    ]
    wrong = [_complex_text(Fraction(x), Fraction(y), _decimal) for x, y in near]
    return _solution(accepts, forms, [*wrong, "nan"])


_POINTS = (0.37 + 0.21j, -0.83 - 0.45j, 1.91 + 0.62j, 0.11 - 1.3j, -2.3 + 0.9j)


def _vanishes(expression: sympy.Expr, variable: str, scale: sympy.Expr) -> bool:
    """Return whether an expression is 0, compared with a scale, at each of some complex points."""
    from mpmath import mpc, mpf
    from sympy import Symbol, lambdify

    names = [Symbol(variable), Symbol("C")]
    compute = lambdify(names, [expression, scale], modules="mpmath")
    for point in _POINTS:
        try:
            value, size = compute(mpc(point), mpf(0.7))
        except (ArithmeticError, ValueError):
            continue
        if abs(value) > 1e-7 * max(1.0, abs(size)):
            return False
    return True


def _antiderivative(question: str) -> Solution:
    """Solve by differentiating the answer and comparing numbers at complex points.

    Some questions integrate a function of X and write dx: either letter is accepted.
    """
    from sympy import Integral, Symbol, diff, integrate

    found = _search(r"∫ (.+?) d([xX])\n", question)
    letter = "X" if "X" in found[1] else "x"
    variable = Symbol(letter)
    integrand = _expression(found[1], letter)

    def accepts(text: str) -> bool:
        try:
            answer = _expression(
                re.sub(rf"\b{letter.swapcase()}\b", letter, text), letter
            )
        except ValueError:
            return False
        return _vanishes(diff(answer, variable) - integrand, letter, integrand)

    whole = integrate(integrand, variable)
    if whole.has(Integral):
        whole = integrate(integrand.expand(), variable)
    right = [f"{whole} + C", f"C + {whole}"]
    right += [right[0].replace(letter, found[2])] if found[2] != letter else []
    wrong = [
        f"{found[1]} + C",
        f"2*({whole}) + C",
        f"-({whole}) + C",
        f"{whole} + {letter} + C",
    ]
    return _solution(accepts, [t for t in right if accepts(t)], wrong)


def polynomial_multiplication(question: str) -> Solution:
    """Solve by expanding the product."""
    from sympy import Poly, Symbol, expand

    found = _search(r"(?:following|expression): (.+)\n", question)
    letters = set(re.findall("[a-zA-Z]", found[1])) or {"x"}
    variable = letters.pop()
    if letters:
        raise UnreadableQuestionError(f"several variables: {found[1][:80]}")
    whole = Poly(_expression(found[1], variable), Symbol(variable))

    def accepts(text: str) -> bool:
        """Return whether a text is the sum of powers, in any order."""
        if re.search(r"[a-zA-Z(]\s*\(|\)\s*\*|\*\s*\(", text):
            return False
        try:
            return bool(expand(_expression(text, variable) - whole.as_expr()) == 0)
        except ValueError:
            return False

    terms = [
        str(factor * Symbol(variable) ** power) for (power,), factor in whole.terms()
    ]
    plain = str(whole.as_expr())
    right = [
        plain,
        plain.replace(" ", ""),
        " + ".join(reversed(terms)).replace("+ -", "- "),
    ]
    return _solution(accepts, right, [f"{plain} + 1", f"-({plain})", "0"])


def _rounded(root: Fraction) -> set[Fraction]:
    """Return a number with four decimals: rounded, cut, and rounded down."""
    scaled = root * 10_000
    return {Fraction(way(scaled), 10_000) for way in (round, math.trunc, math.floor)}


def _real_roots(polynomial: str, variable: str) -> list[Fraction]:
    """Return the distinct real roots, to 30 digits."""
    from sympy import Poly, Symbol, real_roots

    roots = real_roots(
        Poly(_expression(polynomial, variable), Symbol(variable)), multiple=True
    )
    return sorted({Fraction(str(root.evalf(30))) for root in roots})


def polynomial_equations(question: str) -> Solution:
    """Solve by isolating the real roots; either way of rounding is accepted."""
    found = _search(r"real (?:value\(s\) of )?([a-z])\b[^:]*:\s*(.+?) = 0\n", question)
    roots = _real_roots(found[2], found[1])

    def accepts(text: str) -> bool:
        texts = [part for part in text.strip().strip('"').split(",") if part.strip()]
        given = sorted(
            number for part in texts if (number := _number(part)) is not None
        )
        return len(given) == len(texts) == len(roots) and all(
            number in _rounded(root) for number, root in zip(given, roots, strict=True)
        )

    nearest = [f"{float(root):.4f}" for root in roots]
    cut = [f"{math.trunc(root * 10_000) / 10_000:.4f}" for root in roots]
    right = [", ".join(nearest), ", ".join(cut), ", ".join(reversed(nearest))]
    right += [] if roots else ['""']
    off = [f"{float(root) + 0.01:.4f}" for root in roots]
    wrong = [
        ", ".join(nearest[1:]),
        ", ".join([*nearest, "77.0"]),
        ", ".join(off),
        "0.0",
        "",
    ]
    return _solution(accepts, right, wrong)


def simple_equations(question: str) -> Solution:
    """Solve a linear equation from its values at 0 and 1; no answer is right if all are."""
    from sympy import Symbol

    found = _search(r": (.+) = (-?\d+)\s*$", question)
    if found[1] == found[2]:
        return _solution(lambda text: False, [], [])
    name = next(iter(re.findall("[a-zA-Z]", found[1])), "")
    left = _expression(found[1], name or "x")
    zero, one = (int(left.subs(Symbol(name), value)) for value in (0, 1))
    if one == zero:
        raise UnreadableQuestionError(f"not linear: {found[1]}")
    root = Fraction(int(found[2]) - zero, one - zero)

    def accepts(text: str) -> bool:
        return _is_number(re.sub(rf"^\s*{name}\s*=", "", text), root)

    right = [str(root), f"{name} = {root}", _decimal(root)]
    wrong = [str(root + 1), str(-root), str(root * 10), f"{root}0"]
    return _solution(accepts, right, wrong)


def simple_geometry(question: str) -> Solution:
    """Solve by the sum of the interior angles; a convex polygon has none of 180 degrees or more."""
    sides = int(_search(r"(\d+)(?: sides|-gon)", question)[1])
    angles = [Fraction(text) for text in re.findall(rf"({_NUMBER})°", question)]
    if len(angles) != sides - 1:
        raise UnreadableQuestionError(f"{len(angles)} angles of {sides} sides")
    last = 180 * (sides - 2) - sum(angles, Fraction(0))
    if last >= 180:
        return _solution(lambda text: False, [], [])
    wrong = [str(last + 1), str(last + 180), str(180 - last), f"{last}0"]
    return _solution(
        lambda text: _is_number(text, last), [str(last), _decimal(last)], wrong
    )


def _decimals(value: float, places: int) -> str:
    return f"{value:.{places}f}"


def _matches(given: str, truth: Iterable[float]) -> bool:
    """Return whether numbers are these, exactly or rounded to two or three decimals."""
    texts = re.findall(_NUMBER, given)
    values = list(truth)
    return len(texts) == len(values) and all(
        float(text)
        in {float(_decimals(value + way, places)) for places in (2, 3) for way in ways}
        for text, value in zip(texts, values, strict=True)
        for ways in [(0.0, 1e-9, -1e-9)]
    )


def _angle(a: _Point, b: _Point, c: _Point) -> float:
    """Return the angle at `b` in degrees."""
    one = math.atan2(a[1] - b[1], a[0] - b[0])
    two = math.atan2(c[1] - b[1], c[0] - b[0])
    turn = abs(math.degrees(one - two)) % 360
    return min(turn, 360 - turn)


def _orthocenter(a: _Point, b: _Point, c: _Point) -> _Point:
    """Solve (h - a)·(c - b) = 0 and (h - b)·(c - a) = 0 by Cramer's rule."""
    (u, v), (w, z) = (c[0] - b[0], c[1] - b[1]), (c[0] - a[0], c[1] - a[1])
    first, second = u * a[0] + v * a[1], w * b[0] + z * b[1]
    determinant = u * z - v * w
    return (first * z - v * second) / determinant, (
        u * second - w * first
    ) / determinant


def _inradius(a: _Point, b: _Point, c: _Point) -> float:
    """Return twice the area over the perimeter."""
    area = abs((b[0] - a[0]) * (c[1] - a[1]) - (c[0] - a[0]) * (b[1] - a[1]))
    sides = [
        math.dist(*(map(float, p) for p in pair)) for pair in ((a, b), (b, c), (c, a))
    ]
    return float(area) / sum(sides)


def advanced_geometry(question: str) -> Solution:
    """Solve by coordinates; an angle may have two decimals, as the labels have."""
    number = rf"\(({_NUMBER}), ({_NUMBER})\)"
    found = _search(rf"A=?\s*{number}.*?B=?\s*{number}.*?C=?\s*{number}", question)
    n = [Fraction(text) for text in found.groups()]
    corners = {"A": (n[0], n[1]), "B": (n[2], n[3]), "C": (n[4], n[5])}
    if "orthocenter" in question:
        point = _orthocenter(*corners.values())
        x, y = (float(value) + 0.0 for value in point)
        right = [
            f"({_decimals(x, 3)}, {_decimals(y, 3)})",
            f"({round(x, 3)}, {round(y, 3)})",
        ]
        wrong = [
            f"({y:.3f}, {x:.3f})",
            f"({x + 0.1:.3f}, {y:.3f})",
            f"({-x:.3f}, {y:.3f})",
        ]
        return _solution(lambda t: _matches(t, (x, y)), right, wrong)
    if at := re.search(r"\bangle at ([ABC])|\bangle A(B)C", question):
        others = [
            corner for name, corner in corners.items() if name != (at[1] or at[2])
        ]
        value, unit = _angle(others[0], corners[at[1] or at[2]], others[1]), "°"
    elif re.search("incircle|inradius", question):
        value, unit = _inradius(*corners.values()), ""
    else:
        raise UnreadableQuestionError(f"no known problem: {question[:120]}")
    right = [f"{value:.3f}{unit}", f"{round(value, 3)}{unit}"]
    wrong = [
        f"{value + 0.1:.3f}{unit}",
        f"{value * 1.02:.3f}{unit}",
        f"{180 - value:.3f}{unit}",
    ]
    return _solution(lambda t: _matches(t, [value]), right, wrong)


SOLVERS: Mapping[str, Solver] = {
    "advanced_geometry": advanced_geometry,
    "complex_arithmetic": complex_arithmetic,
    "intermediate_integration": _antiderivative,
    "polynomial_equations": polynomial_equations,
    "polynomial_multiplication": polynomial_multiplication,
    "simple_equations": simple_equations,
    "simple_geometry": simple_geometry,
    "simple_integration": _antiderivative,
}

PROPERTIES: Mapping[str, Property] = {}
