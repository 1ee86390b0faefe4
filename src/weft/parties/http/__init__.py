"""The interface of a party for clients, with the routes of FATE Flow below `/v1`."""
