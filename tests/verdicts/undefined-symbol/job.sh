needs cc
# An extension that was built against another version of torch.
printf 'int _ZNK2at6Tensor7is_cudaEv(void); int f(void) { return _ZNK2at6Tensor7is_cudaEv(); }\n' >ext.c
cc -shared -fPIC -Wl,-z,now -o torch_sparse_C.so ext.c
rm ext.c
plan --num-workers 1 -- python3 train.py
launch
