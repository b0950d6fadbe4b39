"""How does Plimsoll run and get tested on one machine?"""
