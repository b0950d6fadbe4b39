"""What Plimsoll's messages look like: the one place that every service, caller and document reads."""
