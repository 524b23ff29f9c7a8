"""Coverage-guided fuzzing of what comes from outside: messages of clients and configurations. See fuzz/__main__.py."""
