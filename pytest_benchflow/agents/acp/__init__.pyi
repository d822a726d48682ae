from .handshake import open_session as open_session
from .permissions import PermissionPolicy as PermissionPolicy
from .permissions import approve_all as approve_all
from .permissions import reject_all as reject_all
from .session import AcpSession as AcpSession
from .types import SessionPlan as SessionPlan
