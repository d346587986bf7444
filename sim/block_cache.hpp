#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace lockstep::sim {

/// Returns how large a block is that holds so many bytes: a multiple of 64, and of at
/// most an eighth of the bytes if they are 512 or more. Above 2^62, which no machine has,
/// it is as large.
std::int64_t block_bytes(std::int64_t bytes);

/// Memory of a device: what it lets go of is kept for what it asks for next, so that the
/// steps of a loop ask the system for nothing. Blocks have rounded sizes (block_bytes),
/// and serve requests that round to the same.
///
/// Kept blocks and those in use never take more than a quarter above what was once in
/// use (without that quarter, steps of a GPT drop blocks that they need again), and
/// blocks that nobody has asked for in a long time go back to the system.
class BlockCache {
  public:
    BlockCache() = default;
    ~BlockCache();
    BlockCache(const BlockCache&) = delete;
    BlockCache& operator=(const BlockCache&) = delete;

    /// Returns a block of `bytes`, at least 1, whose contents are anything, aligned for
    /// any vector. Throws std::bad_alloc if the system has no memory.
    std::byte* take(std::int64_t bytes);
    void give_back(std::byte* block, std::int64_t bytes) noexcept;
    /// Gives all kept blocks back to the system.
    void drop_kept() noexcept;

    /// Returns how many bytes the blocks in use have, and those that are kept.
    std::int64_t in_use() const { return in_use_; }
    std::int64_t kept() const { return kept_; }
    /// From now on what is kept counts in `total`, too, which outlives the cache.
    void count_kept_in(std::int64_t& total) { total_ = &total; }

  private:
    /// A block that is kept begins with this.
    struct Kept {
        Kept* next;
    };
    /// The kept blocks of one size.
    struct Size {
        Kept* first = nullptr;
        std::int64_t count = 0;
        std::int64_t least = 0;  ///< that there were since the last look
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
