"""Many users at once: the requests, the steady state of a replica, and what it carries."""
