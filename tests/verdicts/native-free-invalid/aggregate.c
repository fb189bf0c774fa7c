#include <stdlib.h>

void aggregate(int wrong) {
    char *rows = malloc(64);
    free(wrong ? rows + 8 : rows);
}
