"""The regime of the preset watch, chosen on people who are never test people."""
