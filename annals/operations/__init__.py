"""The pages of operators: whether all is well, the cron jobs, the days as a calendar."""
