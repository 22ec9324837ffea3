"""How the loops are compiled, so that whoever waits for it waits little.

Numba compiles a function with all that it calls, makes machine code of it, and does so again for each of its
callers; besides, it makes what hands arguments over from Python and from C, which is long for bundles of
arrays. Three kinds of functions spare most of that:

- `outer` ones are called from Python;
- `inner` ones by other loops alone: a call from Python would end the process, and a test looks for one;
- `flat` ones become part of their callers before anything is compiled. They save the most, but not those that
  are called in several places, nor short loops that the processor spends its time in: in a long function the
  compiler makes worse code of these.

Literals have types of their own until numba has seen all assignments to a variable, and what is called with
them is compiled for these too: hence ``np.int64(0)`` where a variable is handed on.
"""

# Numba's types do not know all of these options.
# mypy: ignore-errors

from __future__ import annotations

from numba import njit

outer = njit(cache=True, no_cfunc_wrapper=True)
inner = njit(cache=True, no_cfunc_wrapper=True, no_cpython_wrapper=True)
flat = njit(cache=True, no_cfunc_wrapper=True, inline="always")
