"""Tasks: find, read and check them. Importing this package imports neither pydantic nor YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_benchflow.late import late

if TYPE_CHECKING:
    from .config import AgentConfig, Artifact, SolutionConfig, StepConfig, TaskConfig
    from .discover import find_task_file, find_tasks
    from .document import DocumentConfig, RoleConfig, SceneConfig, TurnConfig, UserConfig
    from .env import MissingVariables, filled_variables, missing_variables, resolve_env, resolve_headers
    from .environment import EnvironmentConfig, Healthcheck, McpServer, SetupCommand
    from .heads import RunHints, TaskHead
    from .index import TaskIndex
    from .load import load_task
    from .model import Document, Network, Stage, StageVerifier, Task
    from .problems import Problem, TaskError
    from .prompts import Prompts
    from .services import service_mentions
    from .source import FetchedSource, SourceError, SourceSpec, fetch_source, parse_source
    from .strategy import Strategy
    from .text import read_text
    from .validate import check_settings
    from .values import Table, quoted, refuse
    from .verifier import CollectHook, Hardening, Judge, VerifierConfig
    from .yaml_source import YamlSource

__all__ = [
    "AgentConfig", "Artifact", "CollectHook", "Document", "DocumentConfig", "EnvironmentConfig", "FetchedSource",
    "Hardening", "Healthcheck", "Judge", "McpServer", "MissingVariables", "Network", "Problem", "Prompts",
    "RoleConfig", "RunHints", "SceneConfig", "SetupCommand", "SolutionConfig", "SourceError", "SourceSpec", "Stage",
    "StageVerifier", "StepConfig", "Strategy", "Table", "Task", "TaskConfig", "TaskError", "TaskHead", "TaskIndex",
    "TurnConfig", "UserConfig", "VerifierConfig", "YamlSource", "check_settings", "fetch_source",
    "filled_variables", "find_task_file", "find_tasks", "load_task", "missing_variables", "parse_source",
    "quoted", "read_text", "refuse", "resolve_env", "resolve_headers",
    "service_mentions",
]  # fmt: skip

__getattr__, __dir__ = late(
    __name__,
    {
        "config": ("AgentConfig", "Artifact", "SolutionConfig", "StepConfig", "TaskConfig"),
        "discover": ("find_task_file", "find_tasks"),
        "document": ("DocumentConfig", "RoleConfig", "SceneConfig", "TurnConfig", "UserConfig"),
        "env": ("MissingVariables", "filled_variables", "missing_variables", "resolve_env", "resolve_headers"),
        "environment": ("EnvironmentConfig", "Healthcheck", "McpServer", "SetupCommand"),
        "heads": ("RunHints", "TaskHead"),
        "index": ("TaskIndex",),
        "load": ("load_task",),
        "model": ("Document", "Network", "Stage", "StageVerifier", "Task"),
        "problems": ("Problem", "TaskError"),
        "prompts": ("Prompts",),
        "services": ("service_mentions",),
        "source": ("FetchedSource", "SourceError", "SourceSpec", "fetch_source", "parse_source"),
        "strategy": ("Strategy",),
        "text": ("read_text",),
        "validate": ("check_settings",),
        "values": ("Table", "quoted", "refuse"),
        "verifier": ("CollectHook", "Hardening", "Judge", "VerifierConfig"),
        "yaml_source": ("YamlSource",),
    },
)
