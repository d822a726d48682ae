from .deploy import deploy_skills as deploy_skills
from .deploy import withdraw_skills as withdraw_skills
