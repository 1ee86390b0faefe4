"""The core of the Application Master: a function from events to commands. No I/O, no clock, no threads."""
