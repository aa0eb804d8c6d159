"""The pages for operators: the page "Operations" with alerts and cron jobs, and the page "Days"."""
