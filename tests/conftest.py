"""What every test may ask for."""

pytest_plugins = ["plimsoll_devkit.fixtures"]
