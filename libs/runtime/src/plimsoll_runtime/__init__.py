"""How does a Plimsoll process live: settings, logs, metrics, probes, pool, migrations, HTTP edge."""
