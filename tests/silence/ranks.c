/* A rank of MPI that goes through trials; see trial.py. */

#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size;
static double *sent, *received;

static const char *path(const char *name, int number) {
    static char text[4096];
    snprintf(text, sizeof text, "%s/%s-%d", getenv("TRIALS"), name, number);
    return text;
}

static int is_there(const char *name, int number) { return access(path(name, number), F_OK) == 0; }

static void wait_for(const char *name, int number) {
    while (!is_there(name, number)) usleep(20000);
}

static void put(const char *name, int number) {
    char last[4096], first[4200];
    snprintf(last, sizeof last, "%s", path(name, number));
    snprintf(first, sizeof first, "%s.%d", last, getpid());
    FILE *file = fopen(first, "w");
    fprintf(file, "%d", getpid());
    fclose(file);
    rename(first, last);
}

/* Does the operation once. */
static void repeat(const char *operation, int elements) {
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    MPI_Comm all = MPI_COMM_WORLD;
    if (!strcmp(operation, "allreduce"))
        MPI_Allreduce(sent, received, elements, MPI_DOUBLE, MPI_SUM, all);
    else if (!strcmp(operation, "barrier"))
        MPI_Barrier(all);
    else if (!strcmp(operation, "alltoall"))
        MPI_Alltoall(sent, elements, MPI_DOUBLE, received, elements, MPI_DOUBLE, all);
    else if (!strcmp(operation, "allgather"))
        MPI_Allgather(sent, elements, MPI_DOUBLE, received, elements, MPI_DOUBLE, all);
    else if (!strcmp(operation, "bcast"))
        MPI_Bcast(sent, elements, MPI_DOUBLE, 0, all);
    else if (!strcmp(operation, "reduce"))
        MPI_Reduce(sent, received, elements, MPI_DOUBLE, MPI_SUM, 0, all);
    else if (!strcmp(operation, "ring"))
        MPI_Sendrecv(sent, elements, MPI_DOUBLE, next, 0, received, elements, MPI_DOUBLE, previous, 0, all, MPI_STATUS_IGNORE);
    else {
        fprintf(stderr, "no operation %s\n", operation);
        MPI_Abort(all, 1);
    }
}

static void go_wrong(const char *fault, int number) {
    if (rank == 0 || strncmp(fault, "all_", 4)) put("faulty", number);
    if (!strcmp(fault, "stop"))
        raise(SIGSTOP);
    else if (strstr(fault, "spin") || strstr(fault, "evaluate"))
        while (!is_there("release", number)) continue;
    else
        wait_for("release", number);
}

int main(int count, char **words) {
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    sent = calloc(size * 300000L, sizeof *sent);
    received = calloc(size * 300000L, sizeof *received);
    MPI_Alltoall(sent, 1, MPI_DOUBLE, received, 1, MPI_DOUBLE, MPI_COMM_WORLD);
    put("ready", rank);
    for (int number = 0;; number++) {
        char operation[64], fault[64], done[64];
        int faulty, elements, steps;
        double step_s;
        wait_for("trial", number);
        FILE *file = fopen(path("trial", number), "r");
        int read = fscanf(file, "%63s %63s %d %d %d %lf", operation, fault, &faulty, &elements, &steps, &step_s);
        fclose(file);
        if (read < 6) break;
        int is_outside = !strcmp(fault, "none") || !strcmp(fault, "cut") || !strcmp(fault, "lossy");
        int is_faulty = !is_outside && (faulty == rank || faulty == -1);
        for (int step = 0; step < steps + 20; step++) {
            usleep(1e6 * step_s * (0.8 + 0.4 * ((rank * 7 + step * 3) % 10) / 10));
            if (step == 0 && is_outside && rank == 0) put("faulty", number);
            int is_last = step + 1 == steps && is_faulty;
            if (is_last && !strcmp(fault, "other")) {
                put("faulty", number);
                repeat(strcmp(operation, "barrier") ? "barrier" : "allreduce", elements);
            } else {
                if (is_last) go_wrong(fault, number);
                repeat(operation, elements);
            }
        }
        /* where data goes one way only, the first ranks may have done theirs long before the last */
        MPI_Barrier(MPI_COMM_WORLD);
        snprintf(done, sizeof done, "done-%d", number);
        put(done, rank);
    }
    MPI_Finalize();
    return 0;
}
