"""What a person is told when a model card cannot be made or asked."""


class CardError(ValueError):
    """A card is contradictory, unknown or lacks what was asked of it. The message is one line that says which."""
