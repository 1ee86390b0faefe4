"""What `import weft.tensor` loads."""

import subprocess
import sys


def test_optional_libraries_are_loaded_when_they_are_needed():
    code = (
        "import sys, weft.tensor, weft.remote; "
        "print([name for name in ('scipy', 'h5py', 'zarr', 'xarray', 'pandas') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
