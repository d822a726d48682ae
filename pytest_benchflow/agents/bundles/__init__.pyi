from .bundle import (
    Bundle as Bundle,
    BundleSpec as BundleSpec,
)
from .store import (
    BundleStore as BundleStore,
)
