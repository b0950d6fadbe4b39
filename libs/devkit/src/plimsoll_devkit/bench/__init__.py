"""How fast is it, and how much does it need: always as ratios of one run, never as a timed test."""
