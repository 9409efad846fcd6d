// Structure of arrays against array of structures: adds 1 to the first `used` of the eight fields of each record.
//
// Field f of record i is word i * record_step + f * field_step. In an array of structures a record is in a row: record_step
// is 8 and field_step is 1. In a structure of arrays each field has an array of its own: record_step is 1, and field_step
// is the number of records.
//
// Memory comes in sectors of 32 bytes, which is just one such record. A kernel that uses one field of an array of
// structures moves all eight.
extern "C" __global__ void gpumem_fields(unsigned int *words, unsigned int records, unsigned int record_step,
                                         unsigned int field_step, unsigned int used) {
    const unsigned int threads = gridDim.x * blockDim.x;
    for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < records; i += threads) {
        for (unsigned int field = 0; field < used; ++field) {
            words[i * record_step + field * field_step] += 1;
        }
    }
}
