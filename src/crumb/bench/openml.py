"""TabArena's 51 tables and Higgs from OpenML, through the maintained client (extra ``bench``), kept as Parquet on disk.

Only the tables are taken, not TabArena's folds: the paper draws its own splits from seeds.
A table that was fetched once is read from our own cache, ``CRUMB_DATA_DIR`` or a folder of the user's cache, so that it
can be carried to a machine where nothing can be installed or reached.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from crumb.bench.dataset import Dataset
from crumb.bench.folder import ParquetTable
from crumb.errors import CrumbError, DatasetMissing
from crumb.files import atomic_write

# (name, OpenML data id, task, target, rows, features). Ids, targets and sizes are those of the metadata that TabArena
# publishes (github.com/autogluon/tabarena, curated_tabarena_dataset_metadata.csv; its counts of features include the
# target). 38 classification tasks and 13 regression tasks, as the paper has it.
TABARENA = (
    ("airfoil_self_noise", 46904, "regression", "scaled-sound-pressure", 1_503, 5),
    ("Amazon_employee_access", 46905, "classification", "ResourceApproved", 32_769, 9),
    ("anneal", 46906, "classification", "classes", 898, 38),
    ("Another-Dataset-on-used-Fiat-500", 46907, "regression", "price", 1_538, 7),
    ("APSFailure", 46908, "classification", "AirPressureSystemFailure", 76_000, 170),
    ("bank-marketing", 46910, "classification", "SubscribeTermDeposit", 45_211, 13),
    ("Bank_Customer_Churn", 46911, "classification", "churn", 10_000, 10),
    ("Bioresponse", 46912, "classification", "MoleculeElicitsResponse", 3_751, 1776),
    ("blood-transfusion-service-center", 46913, "classification", "DonatedBloodInMarch2007", 748, 4),
    ("churn", 46915, "classification", "CustomerChurned", 5_000, 19),
    ("coil2000_insurance_policies", 46916, "classification", "MobileHomePolicy", 9_822, 85),
    ("concrete_compressive_strength", 46917, "regression", "ConcreteCompressiveStrength", 1_030, 8),
    ("credit-g", 46918, "classification", "good_or_bad_customer", 1_000, 20),
    ("credit_card_clients_default", 46919, "classification", "DefaultOnPaymentNextMonth", 30_000, 23),
    ("customer_satisfaction_in_airline", 46920, "classification", "satisfaction", 129_880, 21),
    ("diabetes", 46921, "classification", "TestedPositiveForDiabetes", 768, 8),
    ("Diabetes130US", 46922, "classification", "EarlyReadmission", 71_518, 47),
    ("diamonds", 46923, "regression", "price", 53_940, 9),
    ("E-CommereShippingData", 46924, "classification", "ArrivedLate", 10_999, 10),
    ("Fitness_Club", 46927, "classification", "attended", 1_500, 6),
    ("Food_Delivery_Time", 46928, "regression", "Time_taken(min)", 45_451, 9),
    ("GiveMeSomeCredit", 46929, "classification", "FinancialDistressNextTwoYears", 150_000, 10),
    ("hazelnut-spread-contaminant-detection", 46930, "classification", "Contaminated", 2_400, 30),
    ("healthcare_insurance_expenses", 46931, "regression", "charges", 1_338, 6),
    ("heloc", 46932, "classification", "RiskPerformance", 10_459, 23),
    ("hiva_agnostic", 46933, "classification", "CompoundActivity", 3_845, 1617),
    ("houses", 46934, "regression", "LnMedianHouseValue", 20_640, 8),
    ("HR_Analytics_Job_Change_of_Data_Scientists", 46935, "classification", "LookingForJobChange", 19_158, 12),
    ("in_vehicle_coupon_recommendation", 46937, "classification", "AcceptCoupon", 12_684, 24),
    ("Is-this-a-good-customer", 46938, "classification", "bad_client_target", 1_723, 13),
    ("kddcup09_appetency", 46939, "classification", "appetency", 50_000, 212),
    ("Marketing_Campaign", 46940, "classification", "Response", 2_240, 25),
    ("maternal_health_risk", 46941, "classification", "RiskLevel", 1_014, 6),
    ("miami_housing", 46942, "regression", "SALE_PRC", 13_776, 15),
    ("MIC", 46980, "classification", "LET_IS", 1_699, 111),
    ("NATICUSdroid", 46969, "classification", "Malware", 7_491, 86),
    ("online_shoppers_intention", 46947, "classification", "Revenue", 12_330, 17),
    ("physiochemical_protein", 46949, "regression", "ResidualSize", 45_730, 9),
    ("polish_companies_bankruptcy", 46950, "classification", "company_bankrupt", 5_910, 64),
    ("qsar-biodeg", 46952, "classification", "Biodegradable", 1_054, 41),
    ("QSAR-TID-11", 46953, "regression", "MEDIAN_PXC50", 5_742, 1024),
    ("QSAR_fish_toxicity", 46954, "regression", "LC50", 907, 6),
    ("SDSS17", 46955, "classification", "ObjectType", 78_053, 11),
    ("seismic-bumps", 46956, "classification", "HighEnergySeismicBump", 2_584, 15),
    ("splice", 46958, "classification", "SiteType", 3_190, 60),
    ("students_dropout_and_academic_success", 46960, "classification", "AcademicOutcome", 4_424, 36),
    ("superconductivity", 46961, "regression", "critical_temp", 21_263, 81),
    ("taiwanese_bankruptcy_prediction", 46962, "classification", "Bankrupt", 6_819, 94),
    ("website_phishing", 46963, "classification", "WebsiteType", 1_353, 9),
    ("wine_quality", 46964, "regression", "median_wine_quality", 6_497, 12),
    ("jm1", 46979, "classification", "defects", 10_885, 21),
)
# OpenML has several copies of the Higgs data. This is the one of 98,050 rows that many studies use; the paper does not
# say which it took, and cuts it to about 50,000.
HIGGS = ("higgs", 23512, "classification", "class", 98_050, 28)


def data_dir() -> Path:
    """Where fetched tables are kept."""
    if folder := os.environ.get("CRUMB_DATA_DIR"):
        return Path(folder).expanduser()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser()
    return cache / "crumb" / "datasets"


@dataclass(frozen=True)
class OpenMLTable:
    """One table by its OpenML id."""

    name: str
    openml_id: int
    task: str
    target: str
    published_rows: int
    published_columns: int

    @property
    def path(self) -> Path:
        return data_dir() / f"openml-{self.openml_id}.parquet"

    @property
    def origin(self) -> str:
        return f"OpenML {self.openml_id}"

    @property
    def rows(self) -> int | None:
        return self._kept.rows if self.path.is_file() else self.published_rows

    @property
    def columns(self) -> int | None:
        return self._kept.columns if self.path.is_file() else self.published_columns

    @property
    def problem(self) -> str | None:
        if self.path.is_file():
            return self._kept.problem
        if find_spec("openml") is None:
            return "not fetched, and the openml package is not installed (pip install 'crumb-pfn[bench]')"
        return "not fetched yet"

    @cached_property
    def _kept(self) -> ParquetTable:
        return ParquetTable(self.name, self.task, self.target, self.path)

    def load(self) -> Dataset:
        self.fetch()
        return self._kept.load()

    def fetch(self) -> None:
        """Download the table unless it is there. Not for two processes at once: the client's cache does not like it."""
        if self.path.is_file():
            return
        table = self._download()
        with atomic_write(self.path) as file:
            table.to_parquet(file, index=False)

    def _download(self) -> Any:
        if find_spec("openml") is None:
            raise DatasetMissing(
                f"The table {self.name} is not in {data_dir()}, and the openml package is not installed: "
                "pip install 'crumb-pfn[bench]'."
            )
        import openml

        try:
            table = openml.datasets.get_dataset(self.openml_id, download_data=True).get_data()[0]
        except CrumbError:
            raise
        except Exception as error:  # no network, no such id, a server in trouble: the client has a type for each
            raise DatasetMissing(
                f"OpenML did not give the table {self.name} (id {self.openml_id}): "
                f"{' '.join(str(error).split()) or type(error).__name__}"
            ) from error
        if self.target not in table.columns:
            raise DatasetMissing(
                f"What OpenML has as {self.openml_id} is not the table {self.name}: it lacks {self.target!r}."
            )
        return table


def sources() -> list[OpenMLTable]:
    return [OpenMLTable(*entry) for entry in (*TABARENA, HIGGS)]
