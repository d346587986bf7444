#include "src/nn/token_deal.hpp"

#include <cstring>

#include <fmt/format.h>

#include "src/core/require.hpp"

namespace lockstep {

namespace {

/// Copies row `from` of a tensor (rows, …) into row `to` of another.
void copy_row(HostTensor& destination, std::int64_t to, const HostTensor& source,
              std::int64_t from) {
    const std::int64_t bytes = source.bytes() / source.shape()[0];
    std::memcpy(destination.data() + to * bytes, source.data() + from * bytes,
                static_cast<std::size_t>(bytes));
}

void require_ranks(const TokenDeal& deal) {
    require(0 <= deal.rank && deal.rank < deal.ranks,
            "rank {} of {} ranks cannot have tokens; ranks count from 0, and at least "
            "one is expected",
            deal.rank, deal.ranks);
}

}  // namespace

std::int64_t TokenDeal::share_of(std::int64_t tokens, const std::string& what) const {
    require_ranks(*this);
    const int parts = order == TokenOrder::zigzag ? 2 * ranks : ranks;
    require(tokens > 0 && tokens % parts == 0,
            "{}: a sequence of {} tokens cannot be sharded over {} rank{} in {} order; a "
            "positive multiple of {} is expected",
            what, tokens, ranks, ranks == 1 ? "" : "s", name_of(order), parts);
    return tokens / ranks;
}

TokenRows TokenDeal::all(std::int64_t share) const {
    require(order != TokenOrder::zigzag || share % 2 == 0,
            "{} tokens on each of {} ranks in zigzag order; each rank gets two equal "
            "stretches, so an even number is expected",
            share, ranks);
    return {order, ranks, share, 0};
}

TokenRows TokenDeal::own(std::int64_t share) const {
    require_ranks(*this);
    return all(share).of_rank(rank);
}

TokenOrder token_order(const std::string& name) {
    for (const TokenOrder order :
         {TokenOrder::contiguous, TokenOrder::striped, TokenOrder::zigzag})
        if (name == name_of(order)) return order;
    throw UsageError(fmt::format(
        "order of tokens '{}'; contiguous, striped or zigzag is expected", name));
}

HostTensor dealt_rows(const HostTensor& sequence, const TokenDeal& deal) {
    const std::int64_t tokens = sequence.shape()[0];
    const std::int64_t share = deal.share_of(tokens, "dealing tokens");
    const TokenRows own = deal.own(share);
    HostTensor rows(sequence.shape().with_first(share), sequence.dtype());
    for (std::int64_t row = 0; row < share; ++row)
        copy_row(rows, row, sequence, own[row]);
    return rows;
}

HostTensor whole_sequence(const std::vector<HostTensor>& of_ranks, TokenOrder order) {
    const auto ranks = static_cast<std::int64_t>(of_ranks.size());
    require(ranks > 0,
            "whole_sequence() got tokens of no rank; at least one rank is expected");
    const HostTensor& first = of_ranks[0];
    const std::int64_t share = first.shape()[0];
    HostTensor whole(first.shape().with_first(ranks * share), first.dtype());
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const HostTensor& rows = of_ranks[rank];
        require(rows.shape() == first.shape() && rows.dtype() == first.dtype(),
                "rank {} has tokens of shape {}, {}, but rank 0 has {}, {}", rank,
                rows.shape(), rows.dtype(), first.shape(), first.dtype());
        const TokenDeal deal{order, static_cast<int>(ranks), static_cast<int>(rank)};
        const TokenRows own = deal.own(share);
        for (std::int64_t row = 0; row < share; ++row)
            copy_row(whole, own[row], rows, row);
    }
    return whole;
}

}  // namespace lockstep
