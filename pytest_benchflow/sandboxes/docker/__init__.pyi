from .backend import DockerBackend as DockerBackend
from .cleanup import list_leftovers as list_leftovers
from .cleanup import remove_leftovers as remove_leftovers
from .client import daemon_answers as daemon_answers
