"""Where state lives: the tenant's rows in PostgreSQL, loaded under its guard and written with the offsets."""
