"""A Scrapy project whose web is a fixed rule inside the process: no port, no clock, no network."""
