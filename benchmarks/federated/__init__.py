"""What federated jobs cost: their coordination, and their cryptography."""

from __future__ import annotations

from benchmarks.harness import Side, Spec

OF_WEFT = (
    Spec(
        "toy_s",
        "s",
        Side("weft", "benchmarks.federated.jobs", "toy"),
        5.0,
        "Three servers in processes of their own add secret shares: from submit to success.",
        scaled_by="process",
    ),
    Spec(
        "toy_scheduling_s",
        "s",
        Side("weft", "benchmarks.federated.jobs", "toy"),
        0.5,
        "The same, without the time from the start of the processes of parts to their end.",
        figure="scheduling",
        scaled_by="process",
    ),
    Spec(
        "scheduling_overhead_ms",
        "ms",
        Side("weft", "benchmarks.federated.jobs", "chain"),
        50.0,
        "A chain of 20 components at two parties, less the time of their processes: for each component and party.",
        scale=1e3,
        figure="overhead",
        scaled_by="process",
    ),
    Spec(
        "paillier_enc_2048_per_s",
        "numbers/s",
        Side("weft", "benchmarks.federated.cryptography", "encrypt"),
        0.1,
        "Encryptions with 2,048 bits; the ratio is in seconds for each. Peer: the textbook form on gmpy2.",
        peer=Side("textbook", "benchmarks.federated.cryptography", "encrypt_by_the_book"),
        figure="seconds",
    ),
    Spec(
        "psi_1e5",
        "s of CPU",
        Side("weft", "benchmarks.federated.cryptography", "intersect_with_spu"),
        1.2,
        "The intersection of 1e5 with 1e5 ids by ECDH with SPU, both sides. Peer: SPU alone.",
        peer=Side("SPU", "benchmarks.federated.cryptography", "spu_alone"),
        figure="cpu",
    ),
    Spec(
        "psi_1e5_s",
        "s",
        Side("weft", "benchmarks.federated.cryptography", "intersect"),
        20.0,
        "The intersection of 1e5 with 1e5 ids by ECDH, both sides in one process.",
        scaled_by="process",
    ),
    Spec(
        "lr_default_credit_s",
        "s",
        Side("weft", "benchmarks.federated.jobs", "credit"),
        0.15,
        "Logistic regression over 30,000 rows of two parties, 10 epochs. Peer: textbook encryptions of one party.",
        peer=Side("textbook", "benchmarks.federated.cryptography", "credit_by_the_book"),
    ),
    Spec(
        "sbt_breast_50_trees_s",
        "s",
        Side("weft", "benchmarks.federated.jobs", "boost"),
        30.0,
        "50 boosted trees of depth 3 over the breast cancer data of two parties, 2,048 bits: the component, nearly all "
        "of whose time goes into calculations.",
        scaled_by="python",
    ),
    Spec(
        "jobs_waiting_1000_ms",
        "ms",
        Side("weft", "benchmarks.federated.jobs", "waiting"),
        50.0,
        "1,000 jobs wait on one server: the 95th percentile of the time of a submit.",
        scale=1e3,
        scaled_by="process",
    ),
    Spec(
        "restart_to_ready_s",
        "s",
        Side("weft", "benchmarks.federated.jobs", "restart"),
        2.0,
        "A server with 10,000 jobs in its records starts: until it answers.",
        scaled_by="process",
    ),
)
SPECS = OF_WEFT
