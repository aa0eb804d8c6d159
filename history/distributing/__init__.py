"""`annals distribute`: turns an installation into one whose tables of versions are distributed over
a Citus cluster, step by step."""
