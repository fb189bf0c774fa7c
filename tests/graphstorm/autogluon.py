"""All that GraphStorm 0.5 takes from autogluon.tabular 1.4 when it is imported, and never uses but for features by a tabular
foundation model. It is not among the packages that GraphStorm asks for, and needs torch 2.3, for which PyPI has no DGL."""

import sys
import types

TAKEN = {
    "tabular": ["TabularPredictor"],
    "tabular.models.mitra._internal.data.dataset_finetune": ["DatasetFinetune"],
    "tabular.models.mitra._internal.config.enums": ["Task", "LossName", "ModelName"],
    "tabular.models.mitra._internal.core.trainer_finetune": ["CollatorWithPadding"],
}
for name, taken in TAKEN.items():
    parts = [__name__, *name.split(".")]
    for end in range(2, len(parts) + 1):
        full = ".".join(parts[:end])
        sys.modules.setdefault(full, types.ModuleType(full))
    vars(sys.modules[full]).update(dict.fromkeys(taken))
