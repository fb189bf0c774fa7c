from torch.distributed.elastic.multiprocessing import api

api.Std.from_str = classmethod(lambda std, text: std(0))
