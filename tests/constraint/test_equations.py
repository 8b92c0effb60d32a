"""Readable equations: SymPy reads them back and finds the field they were made from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy

from offmap.constraint import readable_equations
from offmap.systems import planar_quadrotor, unicycle


def states(system, count=200, seed=0):
    return np.random.default_rng(seed).uniform(-1.2, 1.2, (count, system.n))


def field(system, x):
    return np.asarray(jax.vmap(system.gamma)(jnp.asarray(x)))


def read_back(text, x, names):
    """The row (N, n + 1) that a printed equation stands for."""
    left, right = text.split(" = ")
    assert right == "0"
    rates = [f"{name}_dot" for name in names]
    symbols = {name: sympy.Symbol(name) for name in (*names, *rates)}
    plain = left.replace("−", "-").replace("·", "*").replace("'", "_dot")
    expression = sympy.expand(sympy.sympify(plain, locals=symbols))
    entries = [expression.coeff(symbols[rate]) for rate in rates]
    zero = dict.fromkeys((symbols[rate] for rate in rates), 0)
    entries.append(expression.subs(zero))
    inputs = [symbols[name] for name in names]
    return np.stack(
        [np.broadcast_to(sympy.lambdify(inputs, e)(*x.T), len(x)) for e in entries], axis=1
    )


def test_unicycle_reads_as_in_the_paper():
    system = unicycle()
    x = states(system)
    (equation,) = readable_equations(x, field(system, x), system.state_names, (("theta",),))
    assert equation.text == "−sin(theta)·px' + cos(theta)·py' = 0"
    assert equation.residual < 1e-12
    assert equation.text in str(equation)


def test_quadrotor_equations_mean_the_true_rows():
    system = planar_quadrotor()
    x = states(system)
    gamma = field(system, x)
    retained = (("vx",), ("vz",), ("omega",), ("phi",))
    equations = readable_equations(x, gamma, system.state_names, retained)
    assert equations[0].text == "px' − vx = 0"
    assert equations[3].text == "cos(phi)·vx' + sin(phi)·vz' + 9.81·sin(phi) = 0"
    for i, equation in enumerate(equations):
        assert equation.residual < 1e-12
        np.testing.assert_allclose(
            read_back(equation.text, x, system.state_names), gamma[:, i], atol=1e-12
        )


def test_two_terms_over_two_inputs_are_found():
    x = np.random.default_rng(1).uniform(-1, 1, (150, 2))
    entry = 2.5 * np.sin(x[:, 0]) - 0.5 * x[:, 1]
    gamma = np.stack([np.ones(150), np.zeros(150), entry], axis=1)[:, None]
    (equation,) = readable_equations(x, gamma, ("a", "b"), (("a", "b"),))
    assert equation.residual < 1e-12
    np.testing.assert_allclose(read_back(equation.text, x, ("a", "b")), gamma[:, 0], atol=1e-12)


@pytest.mark.parametrize(
    "shape", [lambda t: np.tanh(8 * t), lambda t: np.sin(7 * t), lambda t: np.abs(t) ** 0.3]
)
def test_the_residual_says_when_no_short_form_fits(shape):
    theta = np.linspace(-1.2, 1.2, 200)
    x = np.column_stack([theta, theta**2])
    gamma = np.stack([shape(theta), np.ones(200), np.zeros(200)], axis=1)[:, None]
    (equation,) = readable_equations(x, gamma, ("theta", "b"), (("theta",),))
    assert equation.residual > 0.02
    # The residual is what the printed equation leaves of the row; three digits are printed.
    left = gamma[:, 0] - read_back(equation.text, x, ("theta", "b"))
    share = np.sqrt(np.mean(left**2) / np.mean(gamma**2))
    assert equation.residual == pytest.approx(share, rel=0.02)


def test_an_input_that_was_dropped_cannot_explain():
    x = np.random.default_rng(2).uniform(-1, 1, (100, 2))
    gamma = np.stack([np.ones(100), np.zeros(100), x[:, 1]], axis=1)[:, None]
    with_b, without_b = (
        readable_equations(x, gamma, ("a", "b"), (kept,))[0] for kept in (("a", "b"), ("a",))
    )
    assert with_b.residual < 1e-12
    assert without_b.residual > 0.3


def test_a_negligible_entry_is_left_out_but_counted():
    system = unicycle()
    x = states(system, seed=3)
    gamma = field(system, x).copy()
    gamma[:, 0, 2] = 1e-3
    (equation,) = readable_equations(x, gamma, system.state_names, (("theta",),))
    assert "theta'" not in equation.text
    assert equation.residual == pytest.approx(1e-3, rel=1e-3)


def test_a_constant_is_preferred_to_a_function_that_varies_little():
    x = np.random.default_rng(4).uniform(-1e-3, 1e-3, (100, 1))
    gamma = np.tile([1.0, 0.5], (100, 1))[:, None]
    (equation,) = readable_equations(x, gamma, ("a",), (("a",),))
    assert equation.text == "a' + 0.5 = 0"
