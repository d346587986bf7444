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
    std::int64_t tokens = 0;  ///< tokens that have been, or are being, computed
};

/// Decides which sequence has which pages of a cache (Kwon et al. 2023, PagedAttention,
/// 2309.06180, sections 4.2 to 4.4). No two sequences write to one page, and memory is
/// wasted only at the end of each sequence's last page.
///
/// Several sequences that begin with the same tokens may read the same full pages. A page
/// that no sequence has keeps its contents until its memory is needed. The page that was
/// released longest ago is taken first, but never before the pages that follow it in a
/// sequence, because these could not be found without it. Pages form a tree: a page is
/// looked up by the page before it and by its own tokens (Zheng et al. 2023,
/// RadixAttention, 2312.07104, section 3), so no wrong page is found.
///
/// The pool is arithmetic on the host: on all ranks that make the same calls, it returns
/// the same pages.
class PagePool {
  public:
    /// With `reuse`, pages can be found again (prefix caching). Throws UsageError unless
    /// `pages` and `page_rows` are positive and at most 2^31 - 1.
    PagePool(std::int64_t pages, std::int64_t page_rows, bool reuse = true);
    PagePool(const PagePool&) = delete;
    PagePool& operator=(const PagePool&) = delete;

    std::int64_t page_rows() const { return page_rows_; }
    std::int64_t pages() const { return static_cast<std::int64_t>(states_.size()); }
    /// Returns how many pages no sequence has, with or without contents.
    std::int64_t free() const;
    /// Returns how many pages `tokens` tokens need.
    std::int64_t pages_for(std::int64_t tokens) const {
        return (tokens + page_rows_ - 1) / page_rows_;
    }

    /// Finds full pages with the first tokens of `ids`, and gives them to the sequence,
    /// which has no pages yet. The last token is never found, because it must be computed
    /// for its logits. Returns how many tokens were found.
    std::int64_t find(SequencePages& sequence, std::span<const std::int32_t> ids);

    /// Gives the sequence pages for tokens [0, tokens). If there are not enough pages,
    /// gives none and returns false. Throws UsageError if the sequence has more tokens.
    bool grow(SequencePages& sequence, std::int64_t tokens);

    /// Keeps only the sequence's first `tokens` tokens. Pages without kept tokens are
    /// released, and a page with kept and dropped tokens can no longer be found. Throws
    /// UsageError if there are fewer tokens, or if this page is shared or has followers.
    void shrink(SequencePages& sequence, std::int64_t tokens);

    /// Call it when the pass that computes the sequence's tokens has been issued. From
    /// then on full pages of the sequence can be found. `ids` begins with its tokens.
    void computed(const SequencePages& sequence, std::span<const std::int32_t> ids);

    /// Releases all pages of the sequence.
    void release(SequencePages& sequence);

  private:
    using Tokens = std::vector<std::int32_t>;
    /// A page's key: the page before it (-1 for the first page) and its tokens.
    using Key = std::pair<std::int32_t, Tokens>;
    struct State {
        int owners = 0;
        int followers = 0;  ///< pages that have this page in their key
        std::int64_t given_back = 0;
        const Key* key = nullptr;  ///< null if the page cannot be found
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
    std::vector<std::int32_t> blank_;  ///< free pages without contents
    /// Free pages with contents but no followers. The first is taken next.
    std::set<std::pair<std::int64_t, std::int32_t>> leaves_;
    std::int64_t inner_ = 0;  ///< the number of free pages with followers
    std::map<Key, std::int32_t> known_;
};

}  // namespace lockstep
