"""Skills: folders of know-how that agents find where they look for them."""

from pytest_benchflow.skills.deploy import deploy_skills, withdraw_skills

__all__ = ["deploy_skills", "withdraw_skills"]
