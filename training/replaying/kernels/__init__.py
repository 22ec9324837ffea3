"""Compiled loops of the replay engines.

The words of these loops; `memory` has their arrays. A *slot* is a row of a table, for one group: pages in
equal observed state, listed in ``arena[start : start + length]``. A cycle takes pages off the lists of the
best slots to ``picked``: those of one slot are a *run*. It finds out which changed, and lists the pages by
their new state at the arena's end. So nearly all memory is read and written in order. Slots of equal score
are a *class of ties*; numbers called *keys* (a page's random draw, or its id) order the pages of a class.
From a class far larger than its share of the budget, single pages are picked (`choice._walk`). Its slots are
*tracked* from then on: ``group_of[page]`` names the slot of a page, and so which listed pages are still
there. Arguments ``facts`` are constants of a replay (`memory.Facts`), ``work`` its arrays (`memory.Work`).

Loops are short, so that the compiler makes vector instructions of them, and without branches that a processor
cannot predict. Page numbers are unsigned, because numba checks signed indices for being negative.
"""

import contextlib
from pathlib import Path

from scrapy_gp4c.scoring import ranking


def drop_stale_code(folder: Path, *others: Path) -> None:
    """Remove compiled code of a folder if one of its modules, or another file that they use, has changed.

    Numba's cache looks at the file of the function alone, but compiles in the functions that it calls.
    """
    cache = folder / "__pycache__"
    sources = ((path.name, path.stat()) for path in sorted((*folder.glob("*.py"), *others)))
    stamp = "".join(f"{name} {at.st_mtime_ns} {at.st_size}\n" for name, at in sources)
    known = cache / "sources"
    with contextlib.suppress(OSError):  # not writable: then numba keeps its cache elsewhere
        if not known.exists() or known.read_text() != stamp:
            for compiled in cache.glob("*.nb[ic]"):
                compiled.unlink(missing_ok=True)
            known.write_text(stamp)


drop_stale_code(Path(__file__).parent, Path(ranking.__file__))
