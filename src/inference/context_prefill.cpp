#include "src/inference/context_prefill.hpp"

#include <algorithm>
#include <utility>

#include "src/core/require.hpp"
#include "src/nn/wrapper.hpp"

namespace lockstep {

namespace {

/// Attention that also stores the keys and values of its rows, (s, 1, (a + 2 g) w), on
/// pages.
class FillingAttention : public Wrapper {
  public:
    FillingAttention(KeyValueCache& cache, std::unique_ptr<Module> attention,
                     const AttentionSizes& sizes)
        : Wrapper("attention", std::move(attention)),
          cache_(cache),
          sizes_(sizes),
          pages_(cache.add_layer(2 * sizes.key_heads() * sizes.width)) {}

  private:
    Tensor do_infer(const Tensor& x, SourceLine at) override {
        cache_.require_pass(at);
        const AttentionHeads own = attention_heads(x, sizes_);
        cache_.device().store_pages(pages_, x, own.keys.first, cache_.tokens(), at);
        return Wrapper::do_infer(x, at);
    }

    KeyValueCache& cache_;
    AttentionSizes sizes_;
    Tensor pages_;
};

}  // namespace

GptKit filling_cache(GptKit kit, KeyValueCache& cache) {
    require(kit.core != nullptr,
            "filling_cache() needs a GptKit with its own attention, such as "
            "context_parallel() makes");
    kit.core = [&cache, core = kit.core](Device& device, const AttentionSizes& sizes) {
        return std::make_unique<FillingAttention>(cache, core(device, sizes), sizes);
    };
    return with_wanted_rows(std::move(kit), cache);
}

std::int64_t filled_up(const TokenDeal& deal, std::int64_t tokens) {
    const std::int64_t of_each = deal.order == TokenOrder::zigzag ? 2 : 1;
    const std::int64_t stretches = of_each * deal.ranks;
    return (tokens + stretches - 1) / stretches * stretches;
}

PagedTokens before(PagedTokens rows, std::int64_t token) {
    for (PagedSequence& sequence : rows.sequences)
        sequence.count =
            std::clamp<std::int64_t>(token - sequence.first, 0, sequence.count);
    std::erase_if(rows.sequences,
                  [](const PagedSequence& sequence) { return sequence.count == 0; });
    return rows;
}

Pass prompt_share(const TokenDeal& deal, const SequencePages& pages,
                  std::span<const std::int32_t> prompt, std::int64_t page_rows) {
    const auto tokens = static_cast<std::int64_t>(prompt.size());
    const std::int64_t share = filled_up(deal, tokens) / deal.ranks;
    const TokenRows own = deal.own(share);
    Pass pass;
    pass.page_rows = page_rows;
    auto& stretches = pass.tokens.sequences;
    for (std::int64_t row = 0; row < share; ++row) {
        const std::int64_t token = own[row];
        if (stretches.empty() || stretches.back().tokens() != token)
            stretches.push_back({token, 0, pages.pages});
        ++stretches.back().count;
        pass.ids.push_back(token < tokens ? prompt[static_cast<std::size_t>(token)] : 0);
        if (token == tokens - 1) pass.wanted.push_back(static_cast<std::int32_t>(row));
    }
    return pass;
}

}  // namespace lockstep
