#include "src/device/ledger.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "src/core/units.hpp"
#include "src/device/device.hpp"

namespace lockstep {

void Ledger::add(MemoryCategory category, std::int64_t bytes) {
    const auto index = static_cast<std::size_t>(category);
    total_ += bytes;
    report_.current[index] += bytes;
    report_.category_peak[index] =
        std::max(report_.category_peak[index], report_.current[index]);
    if (total_ > report_.peak) {
        report_.peak = total_;
        report_.at_peak = report_.current;
    }
}

void Ledger::remove(MemoryCategory category, std::int64_t bytes) noexcept {
    total_ -= bytes;
    report_.current[static_cast<std::size_t>(category)] -= bytes;
}

namespace {

struct Holding {
    std::int64_t bytes = 0;
    std::int64_t tensors = 0;
};

/// What is alive by category and line, largest first; `wanted` aside.
std::vector<std::pair<std::string, Holding>> holdings(const Device& device,
                                                      const Storage* wanted) {
    std::map<std::string, Holding> by_line;
    for (const Storage* storage = device.live(); storage; storage = storage->next) {
        if (storage == wanted || !storage->counted) continue;
        Holding& holding = by_line[fmt::format(
            "{} made at {}", name_of(storage->category), storage->allocated_at.text())];
        holding.bytes += storage->bytes;
        ++holding.tensors;
    }
    std::vector<std::pair<std::string, Holding>> sorted(by_line.begin(), by_line.end());
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
        return a.second.bytes > b.second.bytes;
    });
    return sorted;
}

/// The lines that hold most of the device, one after the other.
std::string holdings_text(const Device& device, const Storage* wanted) {
    constexpr std::size_t kListed = 8;
    const auto held = holdings(device, wanted);
    std::string text;
    for (std::size_t i = 0; i < std::min(kListed, held.size()); ++i)
        text += fmt::format("\n  {:>10}  in {} {} of {}",
                            bytes_text(held[i].second.bytes), held[i].second.tensors,
                            held[i].second.tensors == 1 ? "tensor" : "tensors",
                            held[i].first);
    if (held.size() > kListed)
        text += fmt::format("\n  and {} lines more", held.size() - kListed);
    return text;
}

std::string purpose_text(const Storage& wanted) {
    return fmt::format("{} at {}", name_of(wanted.category), wanted.allocated_at.text());
}

}  // namespace

OutOfMemoryError out_of_memory(const Ledger& ledger, const Storage& wanted, int rank) {
    return OutOfMemoryError(
        fmt::format("rank {} is out of memory: {} more for {} do not fit, as {} of its "
                    "{} are in use",
                    rank, bytes_text(wanted.bytes), purpose_text(wanted),
                    bytes_text(ledger.total()), bytes_text(ledger.capacity())) +
        holdings_text(*wanted.device, &wanted));
}

OutOfMemoryError out_of_memory(const Device& device, std::int64_t wanted_bytes,
                               std::int64_t free_bytes, std::int64_t total_bytes) {
    const Storage* newest = device.live();
    const Storage* wanted =
        newest && !newest->data && newest->bytes == wanted_bytes ? newest : nullptr;
    return OutOfMemoryError(
        fmt::format("rank {} is out of memory: {} more for {} do not fit, as {} of the "
                    "GPU's {} are free",
                    device.index(), bytes_text(wanted_bytes),
                    wanted ? purpose_text(*wanted) : "an operation's own use",
                    bytes_text(free_bytes), bytes_text(total_bytes)) +
        holdings_text(device, wanted));
}

}  // namespace lockstep
