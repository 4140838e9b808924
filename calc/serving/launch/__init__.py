"""A deployment in the words of its engine."""
