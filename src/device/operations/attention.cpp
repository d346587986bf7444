#include "src/device/operations/attention.hpp"

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

namespace lockstep::ops {

void check_paged(const OperandCheck& check, const PagedTokensRef& tokens,
                 std::int64_t rows, const Shape& pages) {
    check.that(tokens != nullptr,
               "tokens is null; PagedTokens for the rows are expected");
    const std::int64_t of_page = pages[1];
    const std::int64_t most = std::min<std::int64_t>(INT32_MAX, pages[0] * of_page);
    std::int64_t left = rows;
    for (const PagedSequence& sequence : tokens->sequences) {
        const auto& [first, count, own] = sequence;
        check.that(count >= 0 && count <= left,
                   "a sequence of {} rows; after the earlier ones, {} of {} rows remain",
                   count, left, rows);
        left -= count;
        check.that(first >= 0 && first <= most - count,
                   "{} tokens from token {} on do not fit on {} pages of {} rows, which "
                   "hold {} tokens",
                   count, first, pages[0], of_page, most);
        const auto on_pages = static_cast<std::int64_t>(own.size());
        check.that(count == 0 || on_pages > (first + count - 1) / of_page,
                   "a sequence of {} tokens does not fit on {} pages of {} rows",
                   first + count, on_pages, of_page);
        for (const std::int32_t page : own)
            check.that(page >= 0 && page < pages[0], "page {}, outside [0, {})", page,
                       pages[0]);
    }
    check.that(left == 0, "tokens has {} rows; {} are expected", rows - left, rows);
}

namespace {

/// Rows of a page that one sequence writes: [from, to).
struct Written {
    std::int32_t page;
    std::int64_t from, to;
};

}  // namespace

void StorePages::check_apart(const OperandCheck& check) const {
    const std::int64_t of_page = pages.shape()[1];
    std::vector<Written> written;
    for (const PagedSequence& sequence : tokens->sequences)
        for (std::int64_t token = sequence.first; token < sequence.tokens();) {
            const std::int64_t begin = token / of_page * of_page;
            const std::int64_t end = std::min(begin + of_page, sequence.tokens());
            written.push_back({sequence.pages[static_cast<std::size_t>(token / of_page)],
                               token - begin, end - begin});
            token = end;
        }
    std::sort(written.begin(), written.end(), [](const Written& a, const Written& b) {
        return std::tie(a.page, a.from) < std::tie(b.page, b.from);
    });
    for (std::size_t i = 1; i < written.size(); ++i)
        check.that(written[i].page != written[i - 1].page ||
                       written[i].from >= written[i - 1].to,
                   "two tokens would be written to row {} of page {}; sequences may only "
                   "read a shared page, and must copy it before one of them writes to it",
                   written[i].from, written[i].page);
}

}  // namespace lockstep::ops
