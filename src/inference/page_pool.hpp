#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace lockstep {

/// The pages of one sequence, in order, and the tokens that they hold.
struct SequencePages {
    std::vector<std::int32_t> pages;
    std::int64_t tokens = 0;  ///< whose keys and values have been, or are being, computed
};

/// Says which sequence has which pages of a cache (Kwon et al. 2023, PagedAttention,
/// 2309.06180, sections 4.2 to 4.4). No two sequences write to one page, and memory is
/// lost only at the end of each sequence's last page.
///
/// Full pages may be read by several sequences that begin with the same tokens. Pages
/// that nobody has keep what they hold until their place is needed: the one that was
/// given back longest ago goes first, and never before those that follow it in a
/// sequence, which could not be found without it. A tree of pages says what they hold,
/// each known by the page before it and its own tokens (Zheng et al. 2023,
/// RadixAttention, 2312.07104, section 3), so nothing is found by mistake.
///
/// All of it is on the host, and the same on every rank that is asked the same.
class PagePool {
  public:
    /// With `reuse`, pages are found again, what other systems call prefix caching.
    /// Throws UsageError unless both are positive and at most 2^31 - 1.
    PagePool(std::int64_t pages, std::int64_t page_rows, bool reuse = true);
    PagePool(const PagePool&) = delete;
    PagePool& operator=(const PagePool&) = delete;

    std::int64_t page_rows() const { return page_rows_; }
    std::int64_t pages() const { return static_cast<std::int64_t>(states_.size()); }
    /// Pages that nobody has, whatever they hold.
    std::int64_t free() const;
    /// Pages that hold so many tokens.
    std::int64_t pages_for(std::int64_t tokens) const {
        return (tokens + page_rows_ - 1) / page_rows_;
    }

    /// Gives a sequence that has none yet the full pages that hold what it begins with,
    /// but never all of its tokens: of the last one there must be a row that gives
    /// logits. Returns how many tokens that is.
    std::int64_t find(SequencePages& of, std::span<const std::int32_t> ids);

    /// Gives the sequence pages for tokens [0, tokens), if there are enough: all or
    /// none. Throws UsageError for fewer tokens than it has.
    bool grow(SequencePages& of, std::int64_t tokens);

    /// The sequence's tokens from `tokens` on are to be others. Pages that hold nothing
    /// before these go back, and the page that they begin in is found no more. Throws
    /// UsageError for more tokens than it has, and if others have that page, too.
    void shrink(SequencePages& of, std::int64_t tokens);

    /// The pass has been issued that computes the sequence's tokens: those of its pages
    /// that are full can be found from now on. `ids` are its tokens, at least as many.
    void computed(const SequencePages& of, std::span<const std::int32_t> ids);

    /// Takes all pages back.
    void release(SequencePages& of);

  private:
    using Tokens = std::vector<std::int32_t>;
    /// A page by the one before it, -1 for the first, and its tokens.
    using Key = std::pair<std::int32_t, Tokens>;
    struct State {
        int owners = 0;
        int followers = 0;  ///< pages that are known by this one
        std::int64_t given_back = 0;
        const Key* key = nullptr;  ///< by which it can be found; none if it cannot
    };
    State& state(std::int32_t page) { return states_[static_cast<std::size_t>(page)]; }
    void own(std::int32_t page);
    void give_back(std::int32_t page);
    std::int32_t take();
    void forget(std::int32_t page);
    void unlearn(std::int32_t page);

    std::int64_t page_rows_;
    bool reuse_;
    std::int64_t times_ = 0;
    std::vector<State> states_;
    std::vector<std::int32_t> blank_;  ///< that nobody has, and which hold nothing
    /// That nobody has, hold something, and have no followers: the next to go first.
    std::set<std::pair<std::int64_t, std::int32_t>> leaves_;
    std::int64_t inner_ = 0;  ///< that nobody has, but which have followers
    std::map<Key, std::int32_t> known_;
};

}  // namespace lockstep
