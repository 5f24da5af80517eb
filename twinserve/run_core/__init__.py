"""One run of an engine: where requests come from, what happens between steps, what is recorded."""
