"""Settings: their schema, presets and files as written, and the options of methods."""
