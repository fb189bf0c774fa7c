import os


def load_data(name):
    from ogb.nodeproppred import DglNodePropPredDataset

    return DglNodePropPredDataset(name=name)


print("rank", os.environ["RANK"])
graph = load_data("ogbn-products")
