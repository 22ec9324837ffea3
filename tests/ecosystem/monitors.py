"""Monitors for Spidermon."""

from spidermon import Monitor, MonitorSuite


class Visits(Monitor):
    """Looks at the add-on's statistics."""

    def test_visits(self) -> None:
        """Every planned page has an outcome."""
        assert self.data.stats["gp4c/visited"] > 0


class Suite(MonitorSuite):
    """All monitors."""

    monitors = (Visits,)
