"""A process that compiles many programs lets go of them before Linux refuses to map more."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import offmap
import offmap.fitting
from offmap.programs import spare_programs

MAPS = Path("/proc/self/maps")
pytestmark = pytest.mark.skipif(not MAPS.exists(), reason="counts the memory maps of Linux")


def held() -> int:
    return len(MAPS.read_text().splitlines())


def test_programs_are_let_go_only_near_the_limit() -> None:
    programs = [jax.jit(lambda x, k=k: jnp.sin(x * k).sum()) for k in range(40)]
    values = [float(program(jnp.ones(k + 1))) for k, program in enumerate(programs)]
    before = held()
    assert not spare_programs(share=1.0)
    assert spare_programs(share=0.0)
    assert held() < before - 40
    again = [float(program(jnp.ones(k + 1))) for k, program in enumerate(programs)]
    assert again == values


def test_every_fit_looks_first(monkeypatch) -> None:
    looked = []
    monkeypatch.setattr(offmap.fitting, "spare_programs", lambda: looked.append(True))
    with pytest.raises(ValueError, match="must vary"):
        still = offmap.Trajectory(jnp.zeros((6, 1)), jnp.ones((5, 1)), dt=0.1)
        offmap.fit(offmap.Dataset([still]))
    assert looked == [True]
