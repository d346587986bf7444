#include "decode.hpp"

using namespace lockstep;

namespace {

/// Returns the GPT with only this rank's heads and MLP columns. Other weights stay whole.
Gpt share_of(const Gpt& gpt, int rank, int ranks) {
    Gpt own = gpt;
    own.sizes.heads /= ranks;
    own.sizes.key_heads /= ranks;
    own.sizes.inner /= ranks;
    const auto cut = [&](Tensor& matrix) {
        const std::int64_t rows = matrix.shape().matrix_rows() / ranks;
        matrix = matrix.rows(rank * rows, rows);
    };
    for (Block& block : own.blocks)
        for (Tensor* matrix : {&block.queries, &block.keys, &block.values, &block.out,
                               &block.up, &block.down})
            cut(*matrix);
    return own;
}

}  // namespace

std::vector<Tokens> generate_shared(Rank& rank, const Gpt& gpt,
                                    const std::vector<Prompt>& prompts,
                                    std::int64_t page_rows) {
    const Gpt own = share_of(gpt, rank.index(), rank.size());
    return generate_with(
        rank.device(), own, prompts, page_rows,
        [&](const Tensor& terms) { rank.world().all_reduce(terms).wait(); });
}
