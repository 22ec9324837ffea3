"""The ledger: what the workers of one crawl agree on, in PostgreSQL; see docs/distributed.md.

Importing any of it where its libraries are missing raises SettingsError, which says what to install.
"""

from importlib import import_module

from scrapy_gp4c.errors import SettingsError

for _library in ("psycopg", "fsspec"):
    try:
        import_module(_library)
    except ImportError as _error:  # psycopg's, too, where it finds no libpq
        raise SettingsError(
            f"a crawl on several machines needs the library {_library}, which cannot be imported "
            f"({_error}): pip install 'scrapy-gp4c[distributed]'."
        ) from None
