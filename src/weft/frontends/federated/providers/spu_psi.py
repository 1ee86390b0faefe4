"""Intersects ids with SPU: `python -I spu_psi.py FOLDER RANK`, in an environment that has `spu` and not Weft.

The folder has `ids.csv` with a column `id`. Sockets lie there, too: `own.sock` of this party, and `peer.sock`, behind
which the other one is. `common.csv` becomes the common ids, unless only the other party, of rank 0, gets them.

Source: the API of spu 0.9.5, `spu.libpsi`.
"""

import os
import sys

import spu.libpsi as psi
import spu.libspu as spu

_PATIENCE_MS = 24 * 3600 * 1000
_RETRIES, _RETRY_MS = 600, 100


def main(folder: str, rank: int, *, both: bool) -> None:
    """Intersect. RuntimeError: the other party is gone."""
    os.chdir(folder)
    link = spu.link.Desc()
    for at in range(2):
        link.add_party(f"party{at}", "unix:own.sock" if at == rank else "unix:peer.sock")
    link.recv_timeout_ms = link.http_timeout_ms = _PATIENCE_MS
    link.connect_retry_times, link.connect_retry_interval_ms = _RETRIES, _RETRY_MS
    context = spu.link.create_brpc(link, rank)
    config = psi.PsiExecuteConfig(
        protocol_conf=psi.PsiProtocolConfig(
            protocol=psi.PsiProtocol.PROTOCOL_ECDH,
            receiver_rank=0,
            broadcast_result=both,
            ecdh_params=psi.EcdhParams(curve=psi.EllipticCurveType.CURVE_25519),
        ),
        input_params=psi.InputParams(path=os.path.join(folder, "ids.csv"), selected_keys=["id"], keys_unique=True),
        output_params=psi.OutputParams(path=os.path.join(folder, "common.csv")),
    )
    psi.psi_execute(config, context)
    context.stop_link()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), both=sys.argv[3] == "both")
    sys.stdout.flush()
    os._exit(0)  # all is written, and the threads of the library need some time to end
