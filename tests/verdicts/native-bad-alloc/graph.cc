#include <vector>

extern "C" void build_index(long edges) {
    std::vector<long> index(edges);
    index[0] = 1;
}
