#include "sim/host_memory.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/core/units.hpp"

namespace lockstep::sim {

namespace {

/// Runs that need fewer bytes never look at the available memory.
constexpr std::int64_t kSmall = 1 << 20;
/// 1/kSpare of the available memory stays free, for other programs and for all that is
/// not counted here, such as what ranks keep.
constexpr std::int64_t kSpare = 16;

}  // namespace

HostMemory::HostMemory(int ranks, Available available)
    : available_(std::move(available)),
      held_by_(static_cast<std::size_t>(ranks)),
      next_look_(kSmall) {}

/// The system provides memory only when it is written to. So there are two limits. All
/// memory that ranks hold must fit into the memory that was available at the first look.
/// Memory that ranks take until the next look must fit into what is available now.
void HostMemory::look(int rank, std::int64_t bytes, SourceLine at) {
    constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max() / 2;
    const std::int64_t available = std::min(available_(), kUnlimited);
    if (limit_ == 0) limit_ = available + held_ - (available + held_) / kSpare;
    const std::int64_t step = std::max(limit_ / kSpare, kSmall);
    const std::int64_t most =
        std::min(limit_, held_ + std::max<std::int64_t>(available - step, 0));
    if (bytes > most - held_) refuse(rank, bytes, most, at);
    next_look_ = std::min(held_ + bytes + step, limit_);
}

void HostMemory::refuse(int rank, std::int64_t bytes, std::int64_t most,
                        SourceLine at) const {
    constexpr double kGiB = 1 << 30;
    const auto ranks = static_cast<double>(held_by_.size());
    const double wanted = static_cast<double>(held_) + static_cast<double>(bytes);
    const double fullest =
        std::max(static_cast<double>(*std::ranges::max_element(held_by_)),
                 static_cast<double>(held_by_[rank]) + static_cast<double>(bytes));
    throw MissingError(fmt::format(
        "{}: the numbers of {} rank{} do not fit into this machine's memory: with {} "
        "more for rank {} they would take {:.4g} GiB, but only {:.4g} GiB are "
        "available{}; use fewer ranks or smaller sizes, or compute only shapes (--set "
        "numerics=off, or numbers = false in ClusterOptions)",
        at.text(), held_by_.size(), held_by_.size() == 1 ? "" : "s", bytes_text(bytes),
        rank, wanted / kGiB, static_cast<double>(most) / kGiB,
        fullest * ranks <= wanted ? ""
                                  : fmt::format(" (if every rank needs as much as the "
                                                "largest one, all ranks need {:.4g} GiB)",
                                                fullest * ranks / kGiB)));
}

}  // namespace lockstep::sim
