"""Learners, the nets they train and the augmentation they train on."""

from .learner import LEARNERS, Batch, Learner, LearnerSettings, learner
from .step import Descent, apart, cross_entropy

__all__ = ["LEARNERS", "Batch", "Descent", "Learner", "LearnerSettings", "apart", "cross_entropy", "learner"]
