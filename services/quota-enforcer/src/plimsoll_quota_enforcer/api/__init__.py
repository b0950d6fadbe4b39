"""What is served under ``/api/v1/quota``: one module a noun; verbs go through the client onto the topic."""
