from loadkit.analysis.knee.locate import Knee, locate

__all__ = ["Knee", "locate"]
