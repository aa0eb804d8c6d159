"""`annals distribute`: spreads the tables of versions over a Citus cluster, step by step."""
