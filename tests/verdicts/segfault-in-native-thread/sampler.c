#include <pthread.h>
#include <unistd.h>

static void *sample(void *none) {
    usleep(500000);
    *(volatile int *)16 = 1;
    return none;
}

void start_sampler(void) {
    pthread_t thread;
    pthread_create(&thread, 0, sample, 0);
}
