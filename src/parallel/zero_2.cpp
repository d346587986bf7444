#include "src/parallel/zero_2.hpp"

#include <utility>

#include "src/core/require.hpp"
#include "src/parallel/flat_buffer.hpp"

namespace lockstep {

Zero2::Zero2(Device& device, Communicator& replicas, std::vector<Parameter*> parameters,
             const ZeroOptions& options)
    : Zero2("Zero2", nullptr, device, replicas, std::move(parameters), options) {}

Zero2::Zero2(const char* name, Device* home, Device& device, Communicator& replicas,
             std::vector<Parameter*> parameters, const ZeroOptions& options)
    : Zero1(Stage{name, BucketsGo::each_pass, /*keeps_gradients=*/false, home}, device,
            replicas, std::move(parameters), options) {
    require(!options.all_reduce,
            "{}: all_reduce would give each rank all gradients; only stage 1 has memory "
            "for them",
            name);
}

// lesson: zero-2
void Zero2::begin() {
    Zero1::begin();
    has_terms_.assign(buckets().size(), 0);
}

void Zero2::before_use(Parameter& parameter, Use use) {
    Zero1::before_use(parameter, use);
    if (adds_gradient(use)) make_gradients(bucket_of(parameter));
}

void Zero2::make_gradients(std::size_t bucket) {
    Shared& share = shared()[bucket];
    if (share.gradients) return;
    share.gradients =
        make_flat(device(), buckets()[bucket], &Parameter::gradient, replicas().size());
}

void Zero2::start(std::size_t bucket) {
    Shared& share = shared()[bucket];
    in_turn().before(share.sum);  // releases the previous bucket's gradients
    make_gradients(bucket);       // zeros if no gradient was added
    share.sum.start(device(), replicas(),
                    {{std::exchange(share.gradients, {}), share.own_gradients}},
                    std::exchange(has_terms_[bucket], 1) != 0);
    for (Parameter* parameter : buckets()[bucket])
        parameter->gradient = {};
}
// lesson: end

}  // namespace lockstep
