"""Journals and snapshots of runs, and the plan by which a run is resumed from them."""
