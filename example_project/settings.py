"""Settings of the example project: one line installs scrapy-gp4c, the rest is any polite project's."""

ADDONS = {"scrapy_gp4c.Addon": 500}
GP4C_RULES = [{"match": "*/calendar/*", "never": True}]  # a calendar of one host never ends

BOT_NAME = "example_project"
SPIDER_MODULES = ["example_project.spiders"]
USER_AGENT = "example_project (+https://example.org/bot)"

ROBOTSTXT_OBEY = True
CONCURRENT_REQUESTS = 16
CONCURRENT_REQUESTS_PER_DOMAIN = 8
DOWNLOAD_DELAY = 0  # the monitored web is on this machine
DOWNLOAD_TIMEOUT = 30
CONCURRENT_ITEMS = 1  # Scrapy starts so many tasks per response, and there is no pipeline to wait for
COOKIES_ENABLED = False  # nothing to log in to, and whoever looks at every page needs no session
METAREFRESH_ENABLED = False
TELNETCONSOLE_ENABLED = False
LOG_LEVEL = "INFO"
