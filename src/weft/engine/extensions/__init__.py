"""What few jobs need: each extension registers its events, timers and phases (`registry`), and the core names none."""
