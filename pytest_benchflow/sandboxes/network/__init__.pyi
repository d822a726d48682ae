from .dial import is_own as is_own
from .forwarder import Exit as Exit
from .forwarder import Forwarder as Forwarder
from .proxy import proxy_variables as proxy_variables
