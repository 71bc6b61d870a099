"""The demo: a small real run in two dimensions, replayed on one page."""

from deepccg.demo.page import Panel, demo_page
from deepccg.demo.simulate import REACH, DemoRun, Trajectory, simulate

__all__ = ["REACH", "DemoRun", "Panel", "Trajectory", "demo_page", "simulate"]
