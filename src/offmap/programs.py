"""Compiled programs, of which a process can hold only so many."""

import gc
from pathlib import Path

import jax

_MAPS = Path("/proc/self/maps")
_MOST = Path("/proc/sys/vm/max_map_count")
_SHARE = 0.5  # of the maps that a process may have


def spare_programs(share: float = _SHARE) -> bool:
    """Let go of all compiled programs if the process is near to as many as it may hold.

    A fit of data of another shape compiles programs that take two to four thousand entries of the
    process's memory map, and Linux allows 65,530: without this, some twenty such fits end in
    "LLVM compilation error: Cannot allocate memory" and a crash. What is needed again is compiled
    again, or read from JAX's cache where there is one. True if programs were let go.
    """
    try:
        most = int(_MOST.read_text())
        with _MAPS.open() as maps:
            held = sum(1 for _ in maps)
    except (OSError, ValueError):  # not Linux, where there is no such limit
        return False
    if held < share * most:
        return False
    jax.clear_caches()
    gc.collect()
    return True
