"""A small real run in two dimensions, alive on one page."""

from deepccg.demo.page import Panel, demo_page
from deepccg.demo.simulate import REACH, Film, Reel, film

__all__ = ["REACH", "Film", "Panel", "Reel", "demo_page", "film"]
