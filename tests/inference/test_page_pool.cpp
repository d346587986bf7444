#include <algorithm>
#include <map>
#include <set>

#include "src/inference/page_pool.hpp"
#include "tests/catch.hpp"
#include "tests/dice.hpp"
#include "tests/refusal.hpp"

namespace lockstep::test {

namespace {

/// Sequences that arrive, grow and leave. The test also records the contents of their
/// pages itself.
class Traffic {
  public:
    Traffic(std::int64_t pages, std::int64_t rows, bool reuse, std::uint64_t seed)
        : pool_(pages, rows, reuse), dice_(seed) {}

    void arrive() {
        Living living;
        // There are few different beginnings, so that some pages are found.
        const std::int64_t kind = dice_.below(6), length = 1 + dice_.below(30);
        for (std::int64_t i = 0; i < length; ++i)
            living.ids.push_back(
                static_cast<std::int32_t>(i < 4 * kind ? kind : dice_.below(3)));
        const std::int64_t found = pool_.find(living.pages, living.ids);
        REQUIRE(found < length);
        REQUIRE(found % pool_.page_rows() == 0);
        found_ += found;
        for (std::int64_t page = 0; page * pool_.page_rows() < found; ++page)
            REQUIRE(holds_[living.pages.pages[static_cast<std::size_t>(page)]] ==
                    up_to(living.ids, page));
        living_.push_back(std::move(living));
        grow(living_.size() - 1, length);
    }
    void go_on() {
        if (living_.empty()) return arrive();
        const auto one = static_cast<std::size_t>(
            dice_.below(static_cast<std::int64_t>(living_.size())));
        if (dice_.below(4) == 0) return leave(one);
        living_[one].ids.push_back(static_cast<std::int32_t>(dice_.below(3)));
        grow(one, static_cast<std::int64_t>(living_[one].ids.size()));
    }
    void leave(std::size_t one) {
        pool_.release(living_[one].pages);
        REQUIRE(living_[one].pages.pages.empty());
        living_.erase(living_.begin() + static_cast<std::ptrdiff_t>(one));
    }
    void check() const {
        // The second owner of a page has found the page. So the page is full, and both
        // sequences have the same beginning.
        std::map<std::int32_t, std::vector<std::int32_t>> owned;
        for (const Living& living : living_) {
            const std::set<std::int32_t> once(living.pages.pages.begin(),
                                              living.pages.pages.end());
            REQUIRE(once.size() == living.pages.pages.size());
            REQUIRE(static_cast<std::int64_t>(once.size()) ==
                    pool_.pages_for(living.pages.tokens));
            for (std::size_t i = 0; i < living.pages.pages.size(); ++i) {
                const auto own = up_to(living.ids, static_cast<std::int64_t>(i));
                const auto [known, is_new] =
                    owned.try_emplace(living.pages.pages[i], own);
                REQUIRE((is_new || known->second == own));
            }
        }
        REQUIRE(pool_.free() == pool_.pages() - static_cast<std::int64_t>(owned.size()));
    }
    void leave_all() {
        while (!living_.empty())
            leave(0);
    }

    std::int64_t found() const { return found_; }
    std::int64_t refused() const { return refused_; }
    const PagePool& pool() const { return pool_; }

  private:
    struct Living {
        SequencePages pages;
        std::vector<std::int32_t> ids;
    };
    /// Returns all tokens up to the end of page `page`.
    std::vector<std::int32_t> up_to(const std::vector<std::int32_t>& ids,
                                    std::int64_t page) const {
        const auto end = std::min((page + 1) * pool_.page_rows(),
                                  static_cast<std::int64_t>(ids.size()));
        return {ids.begin(), ids.begin() + end};
    }
    void grow(std::size_t one, std::int64_t tokens) {
        Living& living = living_[one];
        const std::int64_t before = pool_.free();
        if (!pool_.grow(living.pages, tokens)) {
            ++refused_;
            REQUIRE(pool_.free() == before);
            return leave(one);
        }
        for (std::size_t page = 0; page < living.pages.pages.size(); ++page)
            holds_[living.pages.pages[page]] =
                up_to(living.ids, static_cast<std::int64_t>(page));
        pool_.computed(living.pages, living.ids);
    }

    PagePool pool_;
    Dice dice_;
    std::vector<Living> living_;
    std::map<std::int32_t, std::vector<std::int32_t>> holds_;
    std::int64_t found_ = 0, refused_ = 0;
};

}  // namespace

TEST_CASE("Pages never leak, over 10,000 arrivals at random", "[inference]") {
    const bool reuse = GENERATE(true, false);
    const std::int64_t pages = GENERATE(9, 40);
    const std::int64_t rows = GENERATE(1, 4);
    CAPTURE(reuse, pages, rows);
    Traffic traffic(pages, rows, reuse, 3);
    Dice dice(4);
    for (int i = 0; i < 10'000; ++i) {
        traffic.arrive();
        for (std::int64_t steps = dice.below(4); steps > 0; --steps)
            traffic.go_on();
        if (i % 16 == 0) traffic.check();
    }
    traffic.leave_all();
    traffic.check();
    CHECK(traffic.pool().free() == pages);
    CHECK(traffic.refused() > 0);
    CHECK((traffic.found() > 0) == reuse);
}

TEST_CASE("A prompt's pages are found by their tokens, but never the whole prompt",
          "[inference]") {
    PagePool pool(6, 4);
    const std::vector<std::int32_t> ids{1, 2, 3, 4, 5, 6, 7, 8, 9};
    SequencePages first;
    CHECK(pool.find(first, ids) == 0);
    REQUIRE(pool.grow(first, 9));
    CHECK(first.pages == std::vector<std::int32_t>{0, 1, 2});
    // A page is not found before it is computed.
    SequencePages early;
    CHECK(pool.find(early, ids) == 0);
    pool.computed(first, ids);
    SequencePages second;
    CHECK(pool.find(second, ids) == 8);
    CHECK(second.pages == std::vector<std::int32_t>{0, 1});
    CHECK(pool.free() == 3);
    // With only eight tokens, the last page must be computed for the last token's logits.
    SequencePages third;
    CHECK(pool.find(third, std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 7, 8}) == 4);
    SequencePages other;
    CHECK(pool.find(other, std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 7, 0, 9}) == 4);
    pool.release(third);
    pool.release(other);
    pool.release(first);
    CHECK(pool.free() == 4);
    pool.release(second);
    CHECK(pool.free() == 6);
    // Pages without an owner can be found until their room is needed. Page 1 continues
    // page 0, so page 0 is dropped last.
    SequencePages large;
    REQUIRE(pool.grow(large, 20));
    SequencePages again;
    CHECK(pool.find(again, ids) == 4);
    CHECK(again.pages == std::vector<std::int32_t>{0});
    CHECK(pool.free() == 0);
    CHECK(!pool.grow(again, 5));
    CHECK(again.tokens == 4);
}

TEST_CASE("The pages of a sequence that gives tokens back are not found again",
          "[inference]") {
    PagePool pool(6, 4);
    const std::vector<std::int32_t> ids{1, 2, 3, 4, 5, 6, 7, 8, 9};
    SequencePages sequence;
    REQUIRE(pool.grow(sequence, 9));
    pool.computed(sequence, ids);
    pool.shrink(sequence, 8);
    CHECK(sequence.pages.size() == 2);
    CHECK(pool.free() == 4);
    pool.shrink(sequence, 6);
    CHECK(sequence.tokens == 6);
    REQUIRE(pool.grow(sequence, 8));
    pool.computed(sequence, std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 0, 0});
    SequencePages other;
    CHECK(pool.find(other, ids) == 4);
    CHECK_THAT(refusal([&] { pool.shrink(sequence, 2); }),
               says("cannot shrink to 2 tokens: 2 sequences have its last page"));
    CHECK_THAT(refusal([&] { pool.shrink(other, 5); }),
               says("a sequence of 4 tokens cannot shrink to 5"));
}

TEST_CASE("An empty pool is refused", "[inference][errors]") {
    CHECK_THAT(refusal([] { PagePool(0, 4); }), says("0 pages of 4 rows"));
    CHECK_THAT(refusal([] { PagePool(4, -1); }), says("4 pages of -1 rows"));
    PagePool pool(4, 4);
    SequencePages sequence;
    REQUIRE(pool.grow(sequence, 5));
    CHECK_THAT(refusal([&] { pool.grow(sequence, 4); }),
               says("a sequence of 5 tokens cannot grow to 4"));
}

}  // namespace lockstep::test
