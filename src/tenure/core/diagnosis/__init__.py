"""What is wrong with a deployment: facts in, findings with advice out."""
