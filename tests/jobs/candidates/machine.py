"""A simulated noisy machine: run times with drift, outliers, two modes and autocorrelation."""

import math
import random

NOISES = ("quiet", "drift", "outliers", "bimodal", "autocorrelated", "all")
SHARED = "shared"  # with another program: a CPU is twice as fast for a few runs now and then


class Machine:
    """Returns run times: a millisecond for the original, `speedup` times less for the candidate.

    Each has the noise of the machine added.
    """

    def __init__(self, noise, seed, speedup=1.0, base=1e-3):
        self.noise, self.speedup, self.base = noise, speedup, base
        self.random = random.Random(f"{noise}/{seed}")
        self.runs = 0
        self.slow = 0.0  # the autocorrelated part of the noise
        self.mode = 0
        self.beside = True  # another program runs on the CPU
        self.phase = self.random.uniform(0, 2 * math.pi)
        self.turns = []

    async def run_once(self, turn):
        self.turns.append(turn)
        seconds = self.base / (self.speedup if turn.which == "candidate" else 1.0)
        return seconds * math.exp(self.random.gauss(0, 0.02) + self.shift())

    def shift(self):
        self.runs += 1
        shift = 0.0
        if self.noise in ("drift", "all"):  # warming up, and a slow wave of other load
            shift += 0.15 * math.exp(-self.runs / 60) + 0.08 * math.sin(self.phase + self.runs / 25)
        if self.noise in ("outliers", "all") and self.random.random() < 0.06:
            shift += self.random.expovariate(2.0)
        if self.noise in ("bimodal", "all"):  # memory laid out well or badly, the same for a while
            if self.random.random() < 0.4:
                self.mode = self.random.random() < 0.35
            shift += 0.08 * self.mode
        if self.noise in ("autocorrelated", "all"):
            self.slow = 0.9 * self.slow + self.random.gauss(0, 0.012)
            shift += self.slow
        if self.noise == SHARED:
            if self.random.random() < (0.05 if self.beside else 0.4):
                self.beside = not self.beside
            shift += 0.7 * self.beside
        return shift
