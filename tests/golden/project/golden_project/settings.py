"""Settings of all golden crawls: one request at a time, answered by `golden_project.web`."""

SPIDER_MODULES = ["golden_project.spiders"]
ADDONS = {"scrapy_gp4c.Addon": 500}
DOWNLOADER_MIDDLEWARES = {"golden_project.web.Answers": 1000}
"""Last before the downloader: every other middleware sees its answers as if they came from the network."""
CONCURRENT_REQUESTS = 1
DOWNLOAD_DELAY = 0
ROBOTSTXT_OBEY = False
COOKIES_ENABLED = False  # would look for the list of public suffixes
TELNETCONSOLE_ENABLED = False
LOGSTATS_INTERVAL = 0
RETRY_TIMES = 1
GP4C_SCORE_FUNCTION = "t * (X + 0.5)"
"""The default of the time."""
GP4C_DISCOVERY = 0.0  # of which the time knew nothing
