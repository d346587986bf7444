#include "src/parallel/context_traffic.hpp"

#include "src/core/require.hpp"

namespace lockstep {

namespace {

/// Returns the number of elements in a rank's keys, the same as in its values.
std::int64_t own_keys(const ContextShape& shape) {
    return shape.tokens / shape.ranks * shape.batch * shape.key_heads * shape.width;
}

/// Two all-to-alls, one of x and one of y.
Sent ulysses(const ContextShape& shape) {
    const std::int64_t columns = 2 * (shape.heads + shape.key_heads) * shape.width;
    return {shape.tokens / shape.ranks * shape.batch * columns / shape.ranks *
                (shape.ranks - 1),
            2 * (shape.ranks - 1)};
}

}  // namespace

Sent sent_forward(ContextMethod method, const ContextShape& shape) {
    const std::int64_t hops = shape.ranks - 1;
    const std::int64_t both = 2 * own_keys(shape);
    switch (method) {
        case ContextMethod::ring_self_attention:
            return {hops * both, 2 * hops};
        case ContextMethod::ring_attention:
        case ContextMethod::gather:
            return {hops * both, hops};
        case ContextMethod::ulysses:
            return ulysses(shape);
    }
    throw UsageError("unknown method of context parallelism");
}

Sent sent_backward(ContextMethod method, const ContextShape& shape) {
    const std::int64_t hops = shape.ranks - 1;
    const std::int64_t both = 2 * own_keys(shape);
    const std::int64_t home = hops > 0 ? hops + 1 : 0;
    switch (method) {
        case ContextMethod::ring_self_attention:
            return {3 * hops * both, 6 * hops};
        case ContextMethod::ring_attention:
            return {(hops + home) * both, hops + home};
        case ContextMethod::gather:
            return {2 * hops * both, 2 * hops};
        case ContextMethod::ulysses:
            return ulysses(shape);
    }
    throw UsageError("unknown method of context parallelism");
}

std::int64_t tensor_parallel_elements(const ContextShape& shape) {
    return 8 * shape.batch * shape.tokens * shape.heads * shape.width / shape.ranks *
           (shape.ranks - 1);
}

}  // namespace lockstep
