#include "sim/check/late_delivery.hpp"

#include <limits>

#include "sim/check/contents.hpp"

namespace lockstep::sim {

namespace {

/// What no program takes for a result.
void spoil(const Tensor& tensor) {
    if (tensor.dtype() == DType::bf16) return;
    tensor.device()->transfer_fill(tensor, is_floating(tensor.dtype())
                                               ? std::numeric_limits<double>::quiet_NaN()
                                               : -1.0);
}

}  // namespace

void prepare(Use& use, bool alone, bool arrives_apart) {
    if (use.tensor.bytes_begin() == nullptr) return;
    if (use.reads && alone) {
        use.hash = hash_of(use.tensor);
        use.hashed = true;
        use.compared_last = !use.writes && arrives_apart;
    }
    use.late = use.writes && alone && arrives_apart;
    if (use.late && !use.reads) spoil(use.tensor);
}

void put_aside(Use& use) {
    if (!use.late || use.aside || use.tensor.device() == nullptr) return;
    use.aside = use.tensor.device()->scratch(use.tensor.shape(), use.tensor.dtype());
    use.tensor.device()->transfer(use.aside, use.tensor);
    spoil(use.tensor);
}

void put_in_place(Use& use) {
    if (!use.aside) return;
    use.tensor.device()->transfer(use.tensor, use.aside);
    use.aside = Tensor();
    use.late = false;
}

bool is_unchanged(const Use& use) {
    return !use.hashed || hash_of(use.tensor) == use.hash;
}

}  // namespace lockstep::sim
