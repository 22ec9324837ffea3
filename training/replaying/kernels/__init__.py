"""Compiled loops of the replay engines.

The grouped engine works on pages of *slots*. A slot holds one group: the pages in equal observed state,
listed in ``arena[start : start + length]``. A cycle takes *runs* of pages off the lists of the best slots to
``picked``, judges them, and lists them by their new state at the arena's end. So nearly all memory is read
and written in order. Only a class of ties far larger than its share of the budget is picked from page by page
(`choice._walk`). Its slots are *tracked* from then on: ``group_of[page]`` names the slot of a page, and so
which listed pages are still there.

Loops are short, so that the compiler makes vector instructions of them, and without branches that a processor
cannot predict. Page numbers are unsigned: numba looks for negative indices else.
"""

import contextlib
from pathlib import Path

from scrapy_gp4c.scoring import ranking


def drop_stale_code(folder: Path, *others: Path) -> None:
    """Remove compiled code of a folder if one of its modules, or one of the files `others`, has changed.

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
