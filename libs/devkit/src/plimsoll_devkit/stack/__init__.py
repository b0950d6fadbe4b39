"""The parts Plimsoll stands on, as processes of this machine."""
