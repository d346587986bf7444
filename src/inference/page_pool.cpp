#include "src/inference/page_pool.hpp"

#include <algorithm>

#include "src/core/require.hpp"

namespace lockstep {

PagePool::PagePool(std::int64_t pages, std::int64_t page_rows, bool reuse)
    : page_rows_(page_rows), reuse_(reuse) {
    constexpr std::int64_t kMost = INT32_MAX;
    require(pages > 0 && page_rows > 0 && pages <= kMost && page_rows <= kMost,
            "{} pages of {} rows; both numbers must be from 1 to {}", pages, page_rows,
            kMost);
    states_.resize(static_cast<std::size_t>(pages));
    // Page 0 is the first to be taken.
    for (std::int64_t page = pages; page-- > 0;)
        blank_.push_back(static_cast<std::int32_t>(page));
}

std::int64_t PagePool::free() const {
    return static_cast<std::int64_t>(blank_.size() + leaves_.size()) + inner_;
}

std::int64_t PagePool::find(SequencePages& sequence, std::span<const std::int32_t> ids) {
    require(sequence.pages.empty(), "find() for a sequence that has {} pages already",
            sequence.pages.size());
    std::int32_t before = -1;
    const auto rows = static_cast<std::size_t>(page_rows_);
    for (std::size_t begin = 0; begin + rows < ids.size(); begin += rows) {
        const auto tokens = ids.subspan(begin, rows);
        const auto found = known_.find({before, Tokens(tokens.begin(), tokens.end())});
        if (found == known_.end()) break;
        before = found->second;
        own(before);
        sequence.pages.push_back(before);
        sequence.tokens += page_rows_;
    }
    return sequence.tokens;
}

bool PagePool::grow(SequencePages& sequence, std::int64_t tokens) {
    require(tokens >= sequence.tokens, "a sequence of {} tokens cannot grow to {}",
            sequence.tokens, tokens);
    const auto has = static_cast<std::int64_t>(sequence.pages.size());
    const std::int64_t more = pages_for(tokens) - has;
    if (more > free()) return false;
    for (std::int64_t i = 0; i < more; ++i)
        sequence.pages.push_back(take());
    sequence.tokens = tokens;
    return true;
}

void PagePool::shrink(SequencePages& sequence, std::int64_t tokens) {
    require(tokens >= 0 && tokens <= sequence.tokens,
            "a sequence of {} tokens cannot shrink to {}", sequence.tokens, tokens);
    ++times_;
    const auto kept = static_cast<std::size_t>(pages_for(tokens));
    for (; sequence.pages.size() > kept; sequence.pages.pop_back())
        give_back(sequence.pages.back());
    sequence.tokens = tokens;
    if (tokens % page_rows_ == 0) return;
    const State& last = state(sequence.pages.back());
    if (last.key == nullptr) return;
    require(last.owners == 1 && last.followers == 0,
            "a sequence cannot shrink to {} tokens: {} sequences have its last page, and "
            "{} other pages follow that page",
            tokens, last.owners, last.followers);
    unlearn(sequence.pages.back());
}

void PagePool::computed(const SequencePages& sequence,
                        std::span<const std::int32_t> ids) {
    if (!reuse_) return;
    require(static_cast<std::int64_t>(ids.size()) >= sequence.tokens,
            "{} ids for a sequence of {} tokens; at least one for each token is expected",
            ids.size(), sequence.tokens);
    std::int32_t before = -1;
    const auto rows = static_cast<std::size_t>(page_rows_);
    for (std::size_t i = 0; (i + 1) * rows <= static_cast<std::size_t>(sequence.tokens);
         ++i) {
        const std::int32_t page = sequence.pages[i];
        if (state(page).key == nullptr) {
            const auto tokens = ids.subspan(i * rows, rows);
            const auto [entry, is_new] =
                known_.try_emplace({before, Tokens(tokens.begin(), tokens.end())}, page);
            // A page of another sequence already has this key, so this page and the pages
            // after it cannot be found.
            if (!is_new) return;
            state(page).key = &entry->first;
            if (before >= 0) ++state(before).followers;
        }
        before = page;
    }
}

void PagePool::release(SequencePages& sequence) {
    ++times_;
    for (const std::int32_t page : sequence.pages)
        give_back(page);
    sequence = {};
}

/// Adds an owner to the page.
void PagePool::own(std::int32_t page) {
    State& entry = state(page);
    if (entry.owners++ > 0) return;
    if (entry.followers > 0)
        --inner_;
    else
        leaves_.erase({entry.given_back, page});
}

/// Removes an owner from the page.
void PagePool::give_back(std::int32_t page) {
    State& entry = state(page);
    require(entry.owners > 0, "page {} is released, but no sequence has it", page);
    if (--entry.owners > 0) return;
    entry.given_back = times_;
    if (entry.key == nullptr)
        blank_.push_back(page);
    else if (entry.followers > 0)
        ++inner_;
    else
        leaves_.insert({entry.given_back, page});
}

/// Returns a page that no sequence has: a page without contents, or the oldest page
/// without followers. If any page is free, such a page exists.
std::int32_t PagePool::take() {
    if (blank_.empty()) forget(leaves_.begin()->second);
    const std::int32_t page = blank_.back();
    blank_.pop_back();
    state(page).owners = 1;
    return page;
}

/// Makes the page blank. No sequence may have the page, and no page may follow it.
void PagePool::forget(std::int32_t page) {
    leaves_.erase({state(page).given_back, page});
    unlearn(page);
    blank_.push_back(page);
}

/// Removes the page's key, so that the page can no longer be found.
void PagePool::unlearn(std::int32_t page) {
    State& entry = state(page);
    const std::int32_t before = entry.key->first;
    known_.erase(known_.find(*entry.key));
    entry.key = nullptr;
    if (before < 0) return;
    State& parent = state(before);
    if (--parent.followers > 0 || parent.owners > 0) return;
    --inner_;
    leaves_.insert({parent.given_back, before});
}

}  // namespace lockstep
