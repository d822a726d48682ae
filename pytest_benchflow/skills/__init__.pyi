from .deploy import (
    deploy_skills as deploy_skills,
    withdraw_skills as withdraw_skills,
)
