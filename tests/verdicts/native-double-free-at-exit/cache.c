#include <stdlib.h>

static void *cache;

void fill(void) { cache = malloc(64); }

void release(void) { free(cache); }
