#include "src/parallel/sequence_parallel.hpp"

#include "src/core/require.hpp"

namespace lockstep {

// lesson: sequence-parallel
Arriving SequenceParallel::enter(const Tensor& x) {
    return gathered(x);
}
Arriving SequenceParallel::enter_backward(const Tensor& dx) {
    return scattered(dx);
}

Tensor SequenceParallel::leave(const Tensor& partial) {
    return scattered(partial).wait();
}
Tensor SequenceParallel::leave_backward(const Tensor& dy) {
    return gathered(dy).wait();
}
// lesson: end

// Gathers (s/t, b, …) of each rank in rank order: (s, b, …)
Arriving SequenceParallel::gathered(const Tensor& part) {
    const std::int64_t length = part.shape()[0] * size();
    Tensor whole = device().empty(part.shape().with_first(length), part.dtype());
    Work work = group().all_gather(whole, part);
    return {std::move(whole), part, std::move(work)};
}

// Sums (s, b, …) over the ranks; each rank gets its (s/t, b, …)
Arriving SequenceParallel::scattered(const Tensor& whole) {
    const std::int64_t length = whole.shape()[0];
    require(length % size() == 0,
            "sequence parallelism: a sequence of {} tokens cannot be sharded over {} "
            "ranks; a multiple of {} is expected",
            length, size(), size());
    Tensor part =
        device().empty(whole.shape().with_first(length / size()), whole.dtype());
    Work work = group().reduce_scatter(part, whole, Reduction::sum);
    return {std::move(part), whole, std::move(work)};
}

}  // namespace lockstep
