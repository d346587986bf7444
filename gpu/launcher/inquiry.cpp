#include "gpu/launcher/inquiry.hpp"

namespace lockstep::gpu {

Inquiry::Inquiry(int size, int stalled_rank, Clock::time_point due)
    : stalled_rank_(stalled_rank),
      due_(due),
      descriptions_(static_cast<size_t>(size)),
      answered_(static_cast<size_t>(size)),
      waiting_(size) {}

void Inquiry::answer(int rank, std::string description) {
    const auto index = static_cast<size_t>(rank);
    if (answered_[index]) return;
    answered_[index] = true;
    descriptions_[index] = std::move(description);
    --waiting_;
}

}  // namespace lockstep::gpu
