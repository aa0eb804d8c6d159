"""The pages of operators: Operations with alerts and cron jobs, and the calendar of days."""
