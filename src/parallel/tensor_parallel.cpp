#include "src/parallel/tensor_parallel.hpp"

#include "src/core/require.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep {

// lesson: f-and-g
// f: every rank reads the whole x. In backward each rank has only its own columns'
// contribution to the gradient.
Arriving TensorParallel::enter(const Tensor& x) {
    return {x, {}, {}};
}
Arriving TensorParallel::enter_backward(const Tensor& dx) {
    return {dx, dx, group_.all_reduce(dx, Reduction::sum)};
}

// g: each rank has its terms of the sum. In backward the gradient of a sum is the
// gradient of each term.
Tensor TensorParallel::leave(const Tensor& partial) {
    group_.all_reduce(partial, Reduction::sum).wait();
    return partial;
}
Tensor TensorParallel::leave_backward(const Tensor& dy) {
    return dy;
}
// lesson: end

void TensorParallel::replicate(const std::vector<Parameter*>& parameters, SourceLine at) {
    replicate_over(
        group_, parameters,
        splits_sequence() ? Placement::Kind::partial : Placement::Kind::replicated, at);
}

void TensorParallel::shard(Parameter& parameter, SourceLine at) {
    parameter.placements.push_back({&group_, Placement::Kind::sharded, at});
}

std::int64_t TensorParallel::share(const std::string& layer, const char* unit,
                                   std::int64_t count) const {
    require(count > 0 && count % size() == 0,
            "{}: {} {} cannot be sharded over {} ranks; a positive multiple of {} is "
            "expected",
            layer, count, unit, size(), size());
    return count / size();
}

}  // namespace lockstep
