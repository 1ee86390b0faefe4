"""The group `weft party` with all its commands: each module adds its own."""

from weft.cli import party_jobs, party_metrics, party_models, party_outputs, party_policy, party_suites
from weft.cli.parties import party_app

__all__ = ["party_app", "party_jobs", "party_metrics", "party_models", "party_outputs", "party_policy", "party_suites"]
