"""Signals of scrapy-gp4c, for `crawler.signals.connect`.

A signal is sent when the visit counts: its callback has ended and its items have left the pipelines. Handlers
get ``event`` (`scrapy_gp4c.notices.events.PageEvent`) and ``spider``; they may be coroutines.
"""

page_new = object()
"""The first copy of a page was fetched."""
page_changed = object()
"""A visit found a change."""
page_gone = object()
"""A page has answered 404 or 410 as often as ``GP4C_GONE_AFTER`` says."""
page_back = object()
"""A page that was gone has answered again."""
page_failing = object()
"""A visit of a page failed, after one that had not."""
page_doubtful = object()
"""An answer was doubted to be the page (a block, a login), after one that was not."""
