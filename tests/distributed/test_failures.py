"""What PostgreSQL reports as one line of ours: of the right kind, with a remedy, never with a password."""

from __future__ import annotations

import re
from urllib.parse import quote, quote_plus

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import errors as states

from scrapy_gp4c.distributed import errors
from scrapy_gp4c.distributed.errors import LedgerError
from scrapy_gp4c.distributed.failures import Failures, unreadable
from scrapy_gp4c.errors import SettingsError

ALL = sorted(
    one.sqlstate
    for one in vars(states).values()
    if isinstance(one, type) and isinstance(getattr(one, "sqlstate", None), str)
)
FAILURES = Failures({"host": "db.example", "port": 5433, "dbname": "crawl", "user": "me", "password": "hush"})


def made(state: str, said: str = "said so") -> psycopg.Error:
    """An error as psycopg raises it for a state."""
    return states.lookup(state)(said)


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("53100", errors.LedgerFullError),
        ("53300", errors.LedgerAwayError),
        ("40P01", errors.LedgerAwayError),
        ("57P01", errors.LedgerAwayError),
        ("08006", errors.LedgerAwayError),
        ("25006", errors.LedgerReadOnlyError),
        ("25P03", errors.LedgerAwayError),
        ("28P01", errors.LedgerRightsError),
        ("42501", errors.LedgerRightsError),
        ("42P01", errors.LedgerSchemaError),
        ("3F000", errors.LedgerSchemaError),
        ("3D000", errors.LedgerSchemaError),
        ("22012", errors.LedgerError),
    ],
)
def test_states_have_their_kind(state: str, kind: type[LedgerError]) -> None:
    """Which decides whether a call is made again, a worker waits or its run ends."""
    assert type(FAILURES.told(made(state))) is kind


@pytest.mark.parametrize("state", ALL)
def test_every_state_is_told_in_one_line(state: str) -> None:
    """Where, what was said, its number, and what to do: none is left to a traceback."""
    told = str(FAILURES.told(made(state, "first\n  LINE 1: second")))
    assert told.startswith(
        "PostgreSQL at db.example, port 5433, database crawl, user me: first LINE 1: second ["
    )
    assert f"[{state}]: " in told
    assert re.search(r"\]: \w.*\.$", told)
    assert "\n" not in told


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ('FATAL:  password authentication failed for user "me"', errors.LedgerRightsError),
        ("fe_sendauth: no password supplied", errors.LedgerRightsError),
        ('FATAL:  database "crawl" does not exist', errors.LedgerSchemaError),
        ("session is read-only", errors.LedgerReadOnlyError),
        ("connection refused", errors.LedgerAwayError),
        ("timeout expired", errors.LedgerAwayError),
    ],
)
def test_what_libpq_says_of_no_connection(said: str, kind: type[LedgerError]) -> None:
    """It has no state then; what is not known to be for good is tried again."""
    assert type(FAILURES.told(psycopg.OperationalError(said))) is kind


SECRETS = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="*"), min_size=3).filter(
    lambda text: text.strip() == text
)


@given(secret=SECRETS, before=st.text(max_size=9), after=st.text(max_size=9), data=st.data())
def test_no_form_of_a_password_is_told(secret: str, before: str, after: str, data: st.DataObject) -> None:
    """As it is, quoted as in a URL, or broken over lines as a long message is."""
    failures = Failures({"host": "h", "password": secret})
    broken = re.sub(r"\s", "\n  ", secret)
    form = data.draw(st.sampled_from([secret, quote(secret), quote(secret, ""), quote_plus(secret), broken]))
    hidden = failures.hidden(f"{before} {form} {after}")
    around = " ".join(f"{before} {after}".split())
    for told in (secret, form, " ".join(form.split())):
        assert told not in hidden or told in around


def test_a_connection_string_that_is_none_is_not_shown() -> None:
    """It may hold a password."""
    assert isinstance(unreadable(), SettingsError)
    assert "not shown as it may hold a password" in str(unreadable())
