"""Learners, the nets they train and the augmentation they train on."""

from .learner import LEARNERS, Batch, Learner, LearnerSettings, learner

__all__ = ["LEARNERS", "Batch", "Learner", "LearnerSettings", "learner"]
