#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace lockstep::sim {

/// Memory of a device: what it lets go of is kept for what it asks for next, so that the
/// steps of a loop ask the system for nothing. Blocks have rounded sizes, at most an
/// eighth more than was asked for, and serve requests that round to the same.
///
/// Kept blocks and those in use never take more than a quarter above what was once in
/// use, and blocks that nobody has asked for in a long time go back to the system.
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

    /// In bytes of blocks.
    std::int64_t in_use() const { return in_use_; }
    std::int64_t kept() const { return kept_; }

  private:
    /// What stands in a block that is kept.
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

    std::map<std::int64_t, Size> sizes_;
    std::int64_t in_use_ = 0;
    std::int64_t most_in_use_ = 0;
    std::int64_t kept_ = 0;
    int takes_ = 0;  ///< since the last look
};

}  // namespace lockstep::sim
