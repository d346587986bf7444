#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep {

/// Tokens of one sequence that are computed together. The keys and values of the whole
/// sequence are on pages of t rows each. The key and value of token i are in row i % t of
/// page pages[i / t], which may be any page (Kwon et al. 2023, PagedAttention,
/// 2309.06180, section 4.1).
struct PagedSequence {
    std::int64_t first = 0;  ///< the token of the first row
    std::int64_t count = 0;  ///< the number of rows: tokens first, first + 1, …
    std::vector<std::int32_t> pages;

    /// Returns the number of tokens up to the last row's token, which is included. The
    /// last row sees all of these tokens.
    std::int64_t tokens() const { return first + count; }
    bool operator==(const PagedSequence&) const = default;
};

/// The rows of a pass: rows of several sequences, one sequence after another.
struct PagedTokens {
    std::vector<PagedSequence> sequences;

    bool operator==(const PagedTokens&) const = default;
    std::int64_t rows() const {
        std::int64_t rows = 0;
        for (const PagedSequence& sequence : sequences)
            rows += sequence.count;
        return rows;
    }
    /// Returns the number of keys that are read if each sequence reads its keys once.
    std::int64_t keys() const {
        std::int64_t keys = 0;
        for (const PagedSequence& sequence : sequences)
            if (sequence.count > 0) keys += sequence.tokens();
        return keys;
    }
    /// Returns the number of pairs of a row and a key that the row sees. A row sees the
    /// keys of its sequence up to its own key.
    std::int64_t pairs() const {
        std::int64_t pairs = 0;
        for (const PagedSequence& sequence : sequences)
            pairs += sequence.count * sequence.first +
                     sequence.count * (sequence.count + 1) / 2;
        return pairs;
    }
};

/// The tokens of one pass, which all of its layers share.
using PagedTokensRef = std::shared_ptr<const PagedTokens>;

}  // namespace lockstep
