"""What is plausible: rules over profiles."""
