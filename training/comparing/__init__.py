"""Score functions side by side: evaluation, leaderboard, budgets, promotion, statistics."""
