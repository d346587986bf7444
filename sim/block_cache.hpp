#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace lockstep::sim {

/// Returns the size of a block for `bytes`: rounded up to a unit, which is a multiple of
/// 64. From 512 bytes on, the unit is at most an eighth of `bytes`. Above 2^62, which no
/// machine has, the size is not rounded.
std::int64_t block_bytes(std::int64_t bytes);

/// Memory of a device. Freed blocks are kept and used again, so that the steps of a loop
/// ask the system for no memory. Blocks have rounded sizes (block_bytes); a block serves
/// requests that round to its size.
///
/// Kept blocks and used blocks together take at most 25 % more than the used blocks took
/// at their peak. (Without these 25 %, steps of a GPT drop blocks that they need again.)
/// Blocks that were not needed for a long time go back to the system.
class BlockCache {
  public:
    BlockCache() = default;
    ~BlockCache();
    BlockCache(const BlockCache&) = delete;
    BlockCache& operator=(const BlockCache&) = delete;

    /// Returns a block for `bytes`, at least 1, aligned for any vector. Its contents are
    /// undefined. Throws std::bad_alloc if the system has no memory.
    std::byte* take(std::int64_t bytes);
    void give_back(std::byte* block, std::int64_t bytes) noexcept;
    /// Gives all kept blocks back to the system.
    void drop_kept() noexcept;

    /// Return the bytes of the blocks in use, and of the kept blocks.
    std::int64_t in_use() const { return in_use_; }
    std::int64_t kept() const { return kept_; }
    /// From now on, kept bytes are also counted in `total`, which must outlive the cache.
    void count_kept_in(std::int64_t& total) { total_ = &total; }

  private:
    /// Every kept block begins with this struct.
    struct Kept {
        Kept* next;
    };
    /// The kept blocks of one size.
    struct Size {
        Kept* first = nullptr;
        std::int64_t count = 0;
        std::int64_t least = 0;  ///< the lowest count since the last look
    };

    void look_for_idle() noexcept;
    void drop(std::int64_t size, Size& kept, std::int64_t count) noexcept;
    void make_room(std::int64_t size) noexcept;
    void add_kept(std::int64_t bytes) noexcept {
        kept_ += bytes;
        *total_ += bytes;
    }

    std::map<std::int64_t, Size> sizes_;
    std::int64_t in_use_ = 0;
    std::int64_t most_in_use_ = 0;
    std::int64_t kept_ = 0;
    std::int64_t own_total_ = 0;
    std::int64_t* total_ = &own_total_;
    int takes_ = 0;  ///< since the last look
};

}  // namespace lockstep::sim
