"""The main job told on real parts, with what was expected beside what was seen: `python -m plimsoll_devkit.demo`."""
