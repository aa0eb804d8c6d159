"""Settings from environment variables: fields.py declares them, env.py reads and checks them."""
