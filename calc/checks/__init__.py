"""What is plausible: rules over profiles, each one sentence, one function, one id."""
