from .rewards import Checks as Checks
from .rewards import primary_reward as primary_reward
from .rewards import read_checks as read_checks
from .rewards import read_rewards as read_rewards
from .verifier import OUTPUT as OUTPUT
from .verifier import Verification as Verification
from .verifier import Verifier as Verifier
from .verifier import output_tail as output_tail
