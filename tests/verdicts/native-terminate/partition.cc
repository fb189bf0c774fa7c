#include <stdexcept>
#include <string>

extern "C" void load_partition(int number) {
    if (number == 2)
        throw std::runtime_error("part" + std::to_string(number) + "/graph.dgl: invalid magic number 0x0, file truncated?");
}
