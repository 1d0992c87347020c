"""The APIs that the gateway speaks: chat completions, Responses, Anthropic's messages."""
