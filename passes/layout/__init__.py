"""Where values lie in memory: channels-last, materialized views, parts of concatenations."""
