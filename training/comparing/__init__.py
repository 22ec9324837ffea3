"""Score functions side by side: statistics, evaluation, the published experiment, promotion."""
