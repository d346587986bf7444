#include "sim/block_cache.hpp"

#include <algorithm>
#include <bit>
#include <new>

namespace lockstep::sim {

namespace {

constexpr std::align_val_t kAlignment{64};
constexpr std::int64_t kLeastBytes = 64;
/// Many steps of the largest models that are trained with numbers.
constexpr int kTakesToIdle = 1 << 16;

/// Sizes are eight to a power of two.
std::int64_t rounded(std::int64_t bytes) {
    const auto above = std::bit_ceil(static_cast<std::uint64_t>(bytes));
    const std::int64_t unit =
        std::max(kLeastBytes, static_cast<std::int64_t>(above / 16));
    return (bytes + unit - 1) / unit * unit;
}

}  // namespace

BlockCache::~BlockCache() {
    for (auto& [size, kept] : sizes_)
        drop(size, kept, kept.count);
}

std::byte* BlockCache::take(std::int64_t bytes) {
    const std::int64_t size = rounded(bytes);
    if (++takes_ > kTakesToIdle) look_for_idle();
    Size& kept = sizes_[size];
    std::byte* block = nullptr;
    if (kept.first != nullptr) {
        block = reinterpret_cast<std::byte*>(kept.first);
        kept.first = kept.first->next;
        kept.least = std::min(kept.least, --kept.count);
        kept_ -= size;
    } else {
        make_room(size);
        block = static_cast<std::byte*>(
            ::operator new(static_cast<std::size_t>(size), kAlignment));
    }
    in_use_ += size;
    most_in_use_ = std::max(most_in_use_, in_use_);
    return block;
}

void BlockCache::give_back(std::byte* block, std::int64_t bytes) noexcept {
    const std::int64_t size = rounded(bytes);
    Size& kept = sizes_.find(size)->second;  // since the block was taken
    kept.first = new (block) Kept{kept.first};
    ++kept.count;
    kept_ += size;
    in_use_ -= size;
}

void BlockCache::look_for_idle() noexcept {
    for (auto& [size, kept] : sizes_) {
        drop(size, kept, kept.least);
        kept.least = kept.count;
    }
    takes_ = 0;
}

void BlockCache::drop(std::int64_t size, Size& kept, std::int64_t count) noexcept {
    for (std::int64_t i = 0; i < count; ++i) {
        Kept* const block = kept.first;
        kept.first = block->next;
        ::operator delete(block, kAlignment);
    }
    kept.count -= count;
    kept.least = std::min(kept.least, kept.count);
    kept_ -= count * size;
}

/// Drops kept blocks, large ones first, so that there is room for one of that size.
void BlockCache::make_room(std::int64_t size) noexcept {
    const std::int64_t used = in_use_ + size;
    const std::int64_t most = std::max(most_in_use_, used);
    std::int64_t left = used + kept_ - (most + most / 4);
    for (auto entry = sizes_.rbegin(); entry != sizes_.rend() && left > 0; ++entry) {
        auto& [of, kept] = *entry;
        const std::int64_t count = std::min(kept.count, (left + of - 1) / of);
        drop(of, kept, count);
        left -= count * of;
    }
}

}  // namespace lockstep::sim
