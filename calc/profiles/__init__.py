"""What is known: schemas of model, hardware and efficiency profiles, their reader and their catalog."""
