from .rewards import (
    Checks as Checks,
    primary_reward as primary_reward,
    read_checks as read_checks,
    read_rewards as read_rewards,
)
from .verifier import (
    OUTPUT as OUTPUT,
    Verification as Verification,
    Verifier as Verifier,
    output_tail as output_tail,
)
