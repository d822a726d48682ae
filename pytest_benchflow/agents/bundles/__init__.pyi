from .bundle import Bundle as Bundle
from .bundle import BundleSpec as BundleSpec
from .store import BundleStore as BundleStore
