"""How the embedded networks were made: a synthetic prior, a training loop, and the state to resume it from.

python -m pretraining --task classification --minutes 10 --resume STATE
"""

STEPS = 14_000  # of a schedule: about ten minutes on an H200
