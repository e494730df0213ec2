/* A parameter server: rank 0 has the weights, the other ranks are workers. In each step a worker pulls the weights
 * and publishes a gradient, and the server pulls all gradients and publishes new weights.
 *
 *   mpicc parameter_server.c $(pkg-config --cflags --libs rondo) -o parameter_server; mpirun -n 3 ./parameter_server
 */
#include <rondo_mpi.h>
#include <rondo_tensor.h>
#include <stdio.h>

enum { COUNT = 1000, STEPS = 20 };
#define TRY(call) \
    if ((call) != RONDO_SUCCESS) puts(rondo_last_error(NULL)), MPI_Abort(MPI_COMM_WORLD, 1)

static rondo_tensor floats(float *data)
{
    rondo_tensor t = RONDO_TENSOR_INIT;
    t.data = data;
    t.bytes = COUNT * sizeof(float);
    t.type = RONDO_FLOAT32;
    return t;
}

int main(int argc, char **argv)
{
    static float weights[STEPS + 1][COUNT], gradient[COUNT];
    rondo_comm *comm;
    rondo_tensor_store *store;
    rondo_tensor_request *sent;
    int rank, n;
    MPI_Init(&argc, &argv);
    TRY(rondo_comm_create(MPI_COMM_WORLD, NULL, &comm));
    TRY(rondo_tensor_store_create(comm, NULL, &store));
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    for (int step = 0; step <= STEPS; step++) {
        rondo_tensor w = floats(weights[step]), g = floats(gradient);
        if (rank == 0) {
            TRY(rondo_tensor_publish(store, "weights", step, &w, n - 1, NULL));
        } else {
            TRY(rondo_tensor_pull(store, "weights", 0, step, NULL, &w, NULL));
            for (int i = 0; i < COUNT; i++) gradient[i] = (float)(i % 10 * rank) - weights[step][i];
            TRY(rondo_tensor_send(store, "gradient", step, &g, &sent));
            TRY(rondo_tensor_wait(sent, 0)); /* then the gradient may be changed */
        }
        for (int worker = 1; rank == 0 && worker < n; worker++) {
            TRY(rondo_tensor_pull(store, "gradient", worker, step, NULL, &g, NULL));
            for (int i = 0; i < COUNT && step < STEPS; i++) {
                weights[step + 1][i] += (worker == 1 ? weights[step][i] : 0) +
                                        0.5f / (float)(n - 1) * gradient[i];
            }
        }
    }
    printf("rank %d: weight 7 is %.3f, expected %.3f\n", rank, weights[STEPS][7], 7.0 * n / 2);
    TRY(rondo_tensor_store_destroy(store));
    TRY(rondo_comm_destroy(comm));
    MPI_Finalize();
    return 0;
}
