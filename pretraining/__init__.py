"""How the embedded networks are made: a synthetic prior, a training loop, and the state to resume
it from.

python -m pretraining train --task classification --minutes 10 --state FOLDER
"""
