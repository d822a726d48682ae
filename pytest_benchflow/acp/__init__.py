"""The Agent Client Protocol: hold a session with any agent that speaks it, whatever else it does."""

from pytest_benchflow.acp.handshake import open_session
from pytest_benchflow.acp.permissions import PermissionPolicy, approve_all, reject_all
from pytest_benchflow.acp.plan import SessionPlan
from pytest_benchflow.acp.session import AcpSession

__all__ = ["AcpSession", "PermissionPolicy", "SessionPlan", "approve_all", "open_session", "reject_all"]
