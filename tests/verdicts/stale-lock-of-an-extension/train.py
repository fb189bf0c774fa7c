from torch.utils import cpp_extension

cpp_extension.load(name="sampler", sources=["sampler.cpp"])
