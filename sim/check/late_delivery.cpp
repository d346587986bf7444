#include "sim/check/late_delivery.hpp"

#include <cstring>
#include <limits>

namespace lockstep::sim {

namespace {

std::uint64_t hash_of(const Tensor& tensor) {
    const HostTensor values = tensor.device()->transfer_to_host(tensor);
    constexpr std::uint64_t kMultiplier = 0x9e3779b97f4a7c15;
    constexpr std::int64_t kWord = sizeof(std::uint64_t);
    const auto* bytes = static_cast<const std::byte*>(values.data());
    std::uint64_t hash = static_cast<std::uint64_t>(values.bytes());
    const auto mix = [&](std::uint64_t word) {
        hash = (hash ^ word) * kMultiplier;
        hash ^= hash >> 32;
    };
    std::int64_t i = 0;
    for (; i + kWord <= values.bytes(); i += kWord) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes + i, kWord);
        mix(word);
    }
    for (; i < values.bytes(); ++i)
        mix(std::to_integer<std::uint64_t>(bytes[i]));
    return hash;
}

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
