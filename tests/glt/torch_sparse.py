"""All that GLT 0.2.4 takes from torch_sparse, sorting edges into rows, so that nothing has to be
compiled, which takes a quarter of an hour."""

import torch


class SparseTensor:
    def __init__(self, row, col, value, sparse_sizes):
        self.storage = self
        order = torch.argsort(row * sparse_sizes[1] + col, stable=True)
        lengths = torch.bincount(row, minlength=sparse_sizes[0])
        self._rowptr = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
        self._col = col[order]
        self._value = None if value is None else value[order]

    def rowptr(self):
        return self._rowptr

    def col(self):
        return self._col

    def value(self):
        return self._value
