needs cc
# An extension that was built against CUDA 11, as `pip install dgl-cu110` brings it, on a host without CUDA.
cc -shared -o libcudart.so.11.0 -Wl,-soname,libcudart.so.11.0 -x c /dev/null
mkdir -p sparse
cc -shared -o sparse/libsparse.so -x c /dev/null -x none -Wl,--no-as-needed ./libcudart.so.11.0
rm libcudart.so.11.0
plan --num-workers 1 -- python3 train.py
launch
