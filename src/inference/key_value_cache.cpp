#include "src/inference/key_value_cache.hpp"

#include <utility>

#include "src/core/require.hpp"
#include "src/nn/wrapper.hpp"

namespace lockstep {

std::int64_t cache_bytes_of_token(const GptSizes& sizes, DType dtype) {
    const BlockSizes& block = sizes.block;
    require_heads("a cache", block.hidden, block.attention());
    const std::int64_t width = block.hidden / block.heads;
    const std::int64_t numbers = block.latent.query_rank > 0
                                     ? block.latent.key_rank + block.latent.rotary
                                     : 2 * block.attention().key_heads() * width;
    return sizes.layers * numbers * bytes_of(dtype);
}

Pass equal_pass(std::int64_t sequences, std::int64_t before, std::int64_t rows,
                std::int64_t page_rows) {
    Pass pass;
    std::int32_t page = 0;
    for (std::int64_t i = 0; i < sequences; ++i) {
        PagedSequence sequence{before, rows, {}};
        for (std::int64_t token = 0; token < before + rows; token += page_rows)
            sequence.pages.push_back(page++);
        pass.tokens.sequences.push_back(std::move(sequence));
        pass.ids.resize(pass.ids.size() + static_cast<std::size_t>(rows));
        pass.wanted.push_back(static_cast<std::int32_t>(pass.ids.size()) - 1);
    }
    return pass;
}

KeyValueCache::KeyValueCache(Device& device, DType dtype, const CacheSizes& sizes)
    : device_(device), dtype_(dtype), sizes_(sizes) {
    require(sizes.pages > 0 && sizes.page_rows > 0,
            "a cache of {} pages of {} rows; both must be positive", sizes.pages,
            sizes.page_rows);
}

Tensor KeyValueCache::add_layer(std::int64_t columns) {
    const MemoryScope scope(device_, MemoryCategory::cache);
    return layers_.emplace_back(
        device_.empty({sizes_.pages, sizes_.page_rows, columns}, dtype_));
}

Tensor KeyValueCache::empty_tokens(std::int64_t tokens, SourceLine at) const {
    require(!layers_.empty(), at,
            "the cache has no layers yet; make a model with it first");
    const std::int64_t columns = layers_[0].shape().columns();
    for (const Tensor& layer : layers_)
        require(layer.shape().columns() == columns, at,
                "the layers have {} and {} columns; the same number is expected", columns,
                layer.shape().columns());
    const auto layers = static_cast<std::int64_t>(layers_.size());
    return device_.empty({layers * tokens, columns}, dtype_, at);
}

void KeyValueCache::require_pass(SourceLine at) const {
    require(tokens_ != nullptr, at,
            "infer was called before begin(), which says which tokens the pass has");
}

Tensor KeyValueCache::begin(const Pass& pass, SourceLine at) {
    enter(pass, at);
    const MemoryScope scope(device_, MemoryCategory::workspace);
    return uploaded(pass.ids, at);
}

/// Uploads numbers as a tensor (count, 1).
Tensor KeyValueCache::uploaded(const std::vector<std::int32_t>& numbers,
                               SourceLine at) const {
    const auto count = static_cast<std::int64_t>(numbers.size());
    return device_.upload(HostTensor::of<std::int32_t>({count, 1}, numbers), at);
}

void KeyValueCache::enter(const Pass& pass, SourceLine at) {
    require(pass.page_rows == 0 || pass.page_rows == sizes_.page_rows, at,
            "the cache has pages of {} rows, but the pool has pages of {}",
            sizes_.page_rows, pass.page_rows);
    for (const PagedSequence& sequence : pass.tokens.sequences)
        require(sequence.count >= 0 &&
                    sequence.count <= static_cast<std::int64_t>(pass.ids.size()),
                at, "a sequence has {} rows, but the pass has {} ids", sequence.count,
                pass.ids.size());
    const std::int64_t rows = pass.tokens.rows();
    require(static_cast<std::int64_t>(pass.ids.size()) == rows, at,
            "the pass has {} rows, but {} ids", rows, pass.ids.size());
    for (const std::int32_t row : pass.wanted)
        require(row >= 0 && row < rows, at,
                "the logits of row {} are wanted, but the pass has {} rows", row, rows);
    std::vector<std::int32_t> places;
    places.reserve(pass.ids.size());
    for (const PagedSequence& sequence : pass.tokens.sequences)
        for (std::int64_t i = 0; i < sequence.count; ++i)
            places.push_back(static_cast<std::int32_t>(sequence.first + i));

    const MemoryScope scope(device_, MemoryCategory::workspace);
    tokens_ = std::make_shared<const PagedTokens>(pass.tokens);
    wanted_ = uploaded(pass.wanted, at);
    *places_ = uploaded(places, at);
}

namespace {

[[noreturn]] void refuse_forward(Saved& saved) {
    throw UsageError(
        "attention with a cache has no forward, because it saves nothing for a backward; "
        "call infer",
        saved.line());
}

/// softmax(Q K^T / sqrt(w)) V of each row, over the keys and values that its sequence has
/// on pages: x (rows, 1, (a + 2 g) w) gives (rows, 1, a w). The keys and values of the
/// pass's own rows are stored on the pages first.
class CachedAttention : public Module {
  public:
    CachedAttention(KeyValueCache& cache, const AttentionSizes& sizes)
        : cache_(cache),
          sizes_(sizes),
          pages_(cache.add_layer(2 * sizes.key_heads() * sizes.width)) {
        require_heads("attention", sizes);
        require(sizes.causal,
                "attention with a cache is causal: what comes later is not "
                "known yet");
    }

  private:
    // lesson: cached-attention
    Tensor do_infer(const Tensor& x, SourceLine at) override {
        cache_.require_pass(at);
        Device& device = cache_.device();
        const AttentionHeads own = attention_heads(x, sizes_);
        const std::int64_t width = own.keys.width, heads = own.keys.heads;
        device.store_pages(pages_, x, own.keys.first, cache_.tokens(), at);
        return device.attend_pages({own.queries,
                                    {pages_, heads, width, 0},
                                    {pages_, heads, width, heads * width}},
                                   cache_.tokens(), score_factor(width), at);
    }
    // lesson: end
    Tensor do_forward(const Tensor& /*x*/, Saved& saved) override {
        refuse_forward(saved);
    }
    Tensor do_backward_input(const Tensor& /*dy*/, Saved& /*saved*/) override {
        return {};
    }

    KeyValueCache& cache_;
    AttentionSizes sizes_;
    Tensor pages_;
};

/// Latent attention that caches the numbers from which keys and values are made: key_rank
/// + rotary numbers per token for all heads. Keys are never made. Instead, the query is
/// multiplied by the matrix that would make keys, and the weighted sum is turned into
/// values at the end (DeepSeek-AI 2024, 2405.04434, section 2.1.2).
///
///     q k = q (W_k c) = (q W_k) c,    sum of p v = W_v (sum of p c)
class CachedLatentAttention : public LatentAttention {
  public:
    CachedLatentAttention(KeyValueCache& cache, const ParameterInit& init,
                          const BlockSizes& sizes)
        : LatentAttention(init, sizes.hidden, sizes.heads, sizes.latent,
                          sizes.rotary_base, sizes.epsilon),
          cache_(cache),
          pages_(cache.add_layer(sizes.latent.key_rank + sizes.latent.rotary)) {}

  private:
    Tensor do_infer(const Tensor& x, SourceLine at) override {
        cache_.require_pass(at);
        const auto [query_rank, rank, width, rotary, value] = sizes_;
        const PagedTokensRef& tokens = cache_.tokens();
        const RowPlaces& places = *cache_.places();
        const Tensor q = q_b_.infer(q_norm_.infer(q_a_.infer(x, at), at), at);
        const Tensor down = kv_a_.infer(x, at);  // c before its norm, and r
        const Tensor latent = device_.empty(x.shape().with_last(rank), x.dtype(), at);
        device_.copy_columns(latent, 0, down, 0, rank, at);
        device_.copy_columns(down, 0, kv_norm_.infer(latent, at), 0, rank, at);
        const Heads turned = of_queries(q).turned, r{down, 1, rotary, rank};
        device_.rotate_at(turned, turned, *places, {rotary_base_}, at);
        device_.rotate_at(r, r, *places, {rotary_base_}, at);
        device_.store_pages(pages_, down, 0, tokens, at);

        const Tensor& kv_b = kv_b_.weight().value;  // (a (width + value), rank)
        const Tensor w_k = kv_b.rows(0, heads_ * width),
                     w_v = kv_b.rows(heads_ * width, heads_ * value);
        const Tensor absorbed = device_.head_matmul(of_queries(q).plain, w_k, {}, at);
        const Tensor sums = device_.attend_pages(
            {{absorbed, heads_, rank, 0}, {pages_, 1, rank, 0}, {pages_, 1, rank, 0}},
            {turned, {pages_, 1, rotary, rank}}, tokens, score_factor(width + rotary),
            at);
        return o_.infer(
            device_.head_matmul({sums, heads_, rank, 0}, w_v, {.transpose_b = true}, at),
            at);
    }
    Tensor do_forward(const Tensor& /*x*/, Saved& saved) override {
        refuse_forward(saved);
    }

    KeyValueCache& cache_;
    Tensor pages_;
};

/// A head that computes only the rows that a pass wants.
class HeadOfWanted : public Wrapper {
  public:
    HeadOfWanted(KeyValueCache& cache, std::unique_ptr<Module> head)
        : Wrapper("a head", std::move(head)), cache_(cache) {}

  private:
    Tensor do_infer(const Tensor& x, SourceLine at) override {
        Device& device = cache_.device();
        const Tensor& rows = cache_.wanted();
        const Tensor wanted = device.empty(
            {rows.elements(), x.shape()[1], x.shape().columns()}, x.dtype(), at);
        device.take_rows(wanted, x, rows, at);
        return Wrapper::do_infer(wanted, at);
    }

    KeyValueCache& cache_;
};

}  // namespace

GptKit with_cache(GptKit kit, KeyValueCache& cache) {
    kit.core = [&cache](Device&, const AttentionSizes& sizes) {
        return std::make_unique<CachedAttention>(cache, sizes);
    };
    kit.latent = [&cache](const ParameterInit& init, const BlockSizes& sizes,
                          const GptKit& all) {
        require_latent(init, sizes, all);
        return std::make_unique<CachedLatentAttention>(cache, init, sizes);
    };
    return with_wanted_rows(std::move(kit), cache);
}

GptKit with_wanted_rows(GptKit kit, KeyValueCache& cache) {
    kit.places = cache.places();
    kit.head = [&cache, head = kit.head](const ParameterInit& init, const GptSizes& sizes,
                                         Parameter* table) {
        return std::make_unique<HeadOfWanted>(cache, head(init, sizes, table));
    };
    return kit;
}

}  // namespace lockstep
