#include "sim/block_cache.hpp"

#include <algorithm>
#include <bit>
#include <new>

// These macros tell AddressSanitizer which bytes of a block are unused. Without
// AddressSanitizer, they do nothing.
#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(begin, bytes) ((void)(begin), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(begin, bytes) ((void)(begin), (void)(bytes))
#endif

namespace lockstep::sim {

namespace {

constexpr std::align_val_t kAlignment{64};
constexpr std::int64_t kLeastBytes = 64;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 62;
/// Unused blocks are dropped after this many calls of take(): many steps of large models.
constexpr int kTakesToIdle = 1 << 16;

std::byte* new_block(std::int64_t size) {
    return static_cast<std::byte*>(
        ::operator new(static_cast<std::size_t>(size), kAlignment, std::nothrow));
}

}  // namespace

/// There are eight sizes from one power of two to the next.
std::int64_t block_bytes(std::int64_t bytes) {
    if (bytes > kMostBytes) return bytes;
    const auto above = std::bit_ceil(static_cast<std::uint64_t>(bytes));
    const std::int64_t unit =
        std::max(kLeastBytes, static_cast<std::int64_t>(above / 16));
    return (bytes + unit - 1) / unit * unit;
}

BlockCache::~BlockCache() {
    drop_kept();
}

std::byte* BlockCache::take(std::int64_t bytes) {
    const std::int64_t size = block_bytes(bytes);
    if (++takes_ > kTakesToIdle) look_for_idle();
    Size& kept = sizes_[size];
    std::byte* block = nullptr;
    if (kept.first != nullptr) {
        block = reinterpret_cast<std::byte*>(kept.first);
        ASAN_UNPOISON_MEMORY_REGION(block, static_cast<std::size_t>(size));
        kept.first = kept.first->next;
        kept.least = std::min(kept.least, --kept.count);
        add_kept(-size);
    } else {
        make_room(size);
        block = new_block(size);
        if (block == nullptr) {
            drop_kept();
            block = new_block(size);
        }
        if (block == nullptr) throw std::bad_alloc();
    }
    ASAN_POISON_MEMORY_REGION(block + bytes, static_cast<std::size_t>(size - bytes));
    in_use_ += size;
    most_in_use_ = std::max(most_in_use_, in_use_);
    return block;
}

void BlockCache::give_back(std::byte* block, std::int64_t bytes) noexcept {
    const std::int64_t size = block_bytes(bytes);
    Size& kept = sizes_.find(size)->second;  // take() has made this entry
    ASAN_UNPOISON_MEMORY_REGION(block, static_cast<std::size_t>(size));
    kept.first = new (block) Kept{kept.first};
    ASAN_POISON_MEMORY_REGION(block + sizeof(Kept),
                              static_cast<std::size_t>(size) - sizeof(Kept));
    ++kept.count;
    add_kept(size);
    in_use_ -= size;
}

void BlockCache::drop_kept() noexcept {
    for (auto& [size, kept] : sizes_)
        drop(size, kept, kept.count);
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
        ASAN_UNPOISON_MEMORY_REGION(block, static_cast<std::size_t>(size));
        ::operator delete(block, kAlignment);
    }
    kept.count -= count;
    kept.least = std::min(kept.least, kept.count);
    add_kept(-count * size);
}

/// Drops kept blocks, large ones first, to make room for a block of this size.
void BlockCache::make_room(std::int64_t size) noexcept {
    const std::int64_t used = in_use_ + size;
    const std::int64_t most = std::max(most_in_use_, used);
    std::int64_t left = used + kept_ - (most + most / 4);
    for (auto entry = sizes_.rbegin(); entry != sizes_.rend() && left > 0; ++entry) {
        auto& [block_size, kept] = *entry;
        const std::int64_t count =
            std::min(kept.count, (left + block_size - 1) / block_size);
        drop(block_size, kept, count);
        left -= count * block_size;
    }
}

}  // namespace lockstep::sim
