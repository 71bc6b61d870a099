"""The demo: a small real run in two dimensions, replayed on one page."""

from deepccg.demo.page import demo_page
from deepccg.demo.simulate import DemoRun, Trajectory, simulate

__all__ = ["DemoRun", "Trajectory", "demo_page", "simulate"]
