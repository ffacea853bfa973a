"""Activities: how users declare them, and what their code can ask while it runs."""
