from torchdata.datapipes.iter import IterDataPipe


class Seeds(IterDataPipe):
    def __iter__(self):
        yield from range(100)


print(sum(Seeds()))
