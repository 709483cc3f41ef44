"""Prints what is wrong with this virtual environment, a line each: "missing …" for what pip can still install, "damaged …" for
what an interrupted pip left behind and would take for complete.

usage: installed.py REQUIREMENT…
"""

import importlib.metadata as metadata
import os
import sys

for requirement in sys.argv[1:]:
    name, _, version = requirement.partition("==")
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        print(f"missing {requirement}")
    else:
        if version not in ("", found, found.partition("+")[0]):
            print(f"missing {requirement} (found {found})")

for distribution in metadata.distributions():
    name = distribution.metadata["Name"]
    files = distribution.files or []
    # pip writes a package's list of files last, and names its own INSTALLER there: a list without it is the wheel's.
    if not any(file.name == "INSTALLER" for file in files):
        print(f"damaged {name}: its installation did not end")
        continue
    for file in files:
        path = file.locate()
        if file.size is not None and (not os.path.exists(path) or os.path.getsize(path) != file.size):
            print(f"damaged {name}: {path}")
            break
