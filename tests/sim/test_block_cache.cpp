#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>

#include "sim/block_cache.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

using sim::BlockCache;

TEST_CASE("A returned block serves the next request of its size") {
    BlockCache cache;
    for (const std::int64_t bytes : {1, 64, 65, 1000, 4096, 100'000, 10'000'000}) {
        CAPTURE(bytes);
        std::byte* const block = cache.take(bytes);
        REQUIRE(reinterpret_cast<std::uintptr_t>(block) % 64 == 0);
        std::memset(block, 1, static_cast<std::size_t>(bytes));
        cache.give_back(block, bytes);
        REQUIRE(cache.take(bytes) == block);
        cache.give_back(block, bytes);
    }
    CHECK(cache.in_use() == 0);
}

TEST_CASE("A block is at most an eighth larger than requested") {
    for (std::int64_t bytes = 512; bytes < 5000; ++bytes) {
        BlockCache cache;
        std::byte* const block = cache.take(bytes);
        REQUIRE(cache.in_use() >= bytes);
        REQUIRE(8 * (cache.in_use() - bytes) <= bytes);
        cache.give_back(block, bytes);
        REQUIRE(cache.kept() >= bytes);
    }
}

TEST_CASE("The size of a huge block does not overflow") {
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    for (std::int64_t bytes = kMost; bytes > kMost / 4; bytes -= kMost / 100)
        REQUIRE(sim::block_bytes(bytes) >= bytes);
}

TEST_CASE("Kept and used blocks together take little more than the peak use") {
    BlockCache cache;
    std::int64_t most = 0;
    // Each round needs larger blocks, so the earlier smaller blocks are of no use.
    for (std::int64_t bytes = 1000; bytes < 50'000'000; bytes = bytes * 3 / 2) {
        std::array<std::byte*, 3> blocks{};
        for (std::byte*& block : blocks)
            block = cache.take(bytes);
        most = std::max(most, cache.in_use());
        REQUIRE(4 * (cache.in_use() + cache.kept()) <= 5 * most);
        for (std::byte* block : blocks)
            cache.give_back(block, bytes);
    }
}

TEST_CASE("Blocks that are not reused are freed") {
    BlockCache cache;
    std::array<std::byte*, 8> once{};
    constexpr std::int64_t kLarge = 1 << 20;
    for (std::byte*& block : once)
        block = cache.take(kLarge);
    for (std::byte* block : once)
        cache.give_back(block, kLarge);
    CHECK(cache.kept() == 8 * kLarge);
    // From now on only two large blocks and one small block are in use.
    for (int step = 0; step < 100'000; ++step) {
        std::byte* const a = cache.take(kLarge);
        std::byte* const b = cache.take(kLarge);
        std::byte* const c = cache.take(100);
        cache.give_back(a, kLarge);
        cache.give_back(b, kLarge);
        cache.give_back(c, 100);
    }
    CHECK(cache.kept() < 3 * kLarge);
    CHECK(cache.kept() >= 2 * kLarge);
}

TEST_CASE("The kept blocks of several caches are counted together, and can be dropped") {
    std::int64_t total = 0;
    {
        BlockCache one, other;
        one.count_kept_in(total);
        other.count_kept_in(total);
        one.give_back(one.take(6400), 6400);
        other.give_back(other.take(64), 64);
        CHECK(total == 6656 + 64);  // 13 units of 512 bytes, and one unit of 64
        one.drop_kept();
        CHECK(one.kept() == 0);
        CHECK(total == 64);
    }
    CHECK(total == 0);
}

}  // namespace lockstep::test
