"""Apache Kafka itself: for the tests, and to try Annals with it (`scripts/kafka`)."""
