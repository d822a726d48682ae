"""A user who is told the solution, and hints at it only when the agent is stuck."""

from pytest_benchflow import BaseUser, RoundResult


class Tutor(BaseUser):
    """Say the task first; after each round that the tests do not pass, show one more line of the solution."""

    async def setup(self, instruction: str, solution: str | None = None) -> None:
        """Keep the lines of the solution that do something."""
        lines = (solution or "").splitlines()
        self.hints = [line for line in lines if line.strip() and not line.startswith("#")]

    async def run(self, round: int, instruction: str, round_result: RoundResult | None = None) -> str | None:
        """Return what to say next, None when the tests pass or there is nothing left to say."""
        if round_result is None:
            return instruction
        if round_result.reward == 1.0 or round > len(self.hints):
            return None
        hints = "\n".join(self.hints[:round])
        return f"{instruction}\n\nThe tests do not pass yet. Somebody who solved it began like this:\n\n{hints}"
