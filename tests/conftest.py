"""Strict settings for every test; importing offmap itself turns on 64-bit floats."""

import sys

import jax
from hypothesis import settings
from jaxtyping import install_import_hook

# The hook rewrites modules as they are imported, so it has to come before the first import.
if "offmap" in sys.modules:
    raise RuntimeError(
        "offmap was imported before tests/conftest.py could install the shape checker; "
        "remove the plugin or option that imports it early."
    )
install_import_hook("offmap", "beartype.beartype")

jax.config.update("jax_numpy_rank_promotion", "raise")

# The same examples on every run; compilation makes the first one slow, so there is no deadline.
settings.register_profile("offmap", derandomize=True, deadline=None)
settings.load_profile("offmap")
