"""What a service writes that sends its versions without the outbox, and what it then loses."""
