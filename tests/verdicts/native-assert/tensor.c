#include <assert.h>

void slice_rows(int count) { assert(count > 0 && "empty slice"); }
