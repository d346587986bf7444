#include "adapters.hpp"

#include "schedules.hpp"

using namespace lockstep;

Schedule adapters::one_forward_one_backward(int stages, int micro_batches) {
    return ::one_forward_one_backward(stages, micro_batches);
}

Schedule adapters::with_memory_limit(int stages, int micro_batches, int limit) {
    return ::with_memory_limit(stages, micro_batches, limit);
}

Schedule adapters::split_backward(int stages, int micro_batches, int limit) {
    return ::split_backward(stages, micro_batches, limit);
}
