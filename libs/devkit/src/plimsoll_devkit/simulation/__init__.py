"""Does the engine keep its promises when everything around it fails? Its own loop, on virtual time, seeded."""
