#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "src/device/paged_tokens.hpp"
#include "src/nn/gpt.hpp"

namespace lockstep {

/// Returns the bytes that a token's keys and values take in all layers: 2 g w numbers
/// each, with g heads of keys and w columns of a head; of latent attention those that
/// keys and values are made of, key_rank + rotary. So 516,096 for Llama 3.1 405B, 327,680
/// for Qwen2.5-72B and 70,272 for DeepSeek-V3 in bf16 (DeepSeek-AI 2025, 2505.09343,
/// table 1).
std::int64_t cache_bytes_of_token(const GptSizes& sizes, DType dtype);

struct CacheSizes {
    std::int64_t pages = 0;       ///< of each layer
    std::int64_t page_rows = 16;  ///< tokens that a page holds
};

/// A pass goes through a model at once: tokens of several sequences, one's rows behind
/// the other's. A prompt brings many tokens, a sequence that is being generated one (Yu
/// et al. 2022, Orca, OSDI, section 3: selective batching).
struct Pass {
    PagedTokens tokens;                ///< which tokens the rows are, and on which pages
    std::vector<std::int32_t> ids;     ///< of all rows
    std::vector<std::int32_t> wanted;  ///< rows whose logits are asked for
    std::int64_t page_rows = 0;  ///< of the pool that the pages are from; 0: not said
    std::vector<std::int64_t> requests{};  ///< whose the sequences are, if that is said
};

/// Returns a pass of equal sequences, each on pages of its own from 0 on: of each, `rows`
/// tokens behind `before` that are in the cache. All ids are 0. It is for measuring.
Pass equal_pass(std::int64_t sequences, std::int64_t before, std::int64_t rows,
                std::int64_t page_rows);

/// Keys and values of all tokens that a model has seen, on pages: what makes generating a
/// token cost one row instead of all that were before (Pope et al. 2022, 2211.05102,
/// section 2). Any sequence's tokens may lie on any page, and a page may be several
/// sequences'; who has which, PagePool says.
///
/// A kit puts it into a model. Then the model infers, pass by pass:
///
///     KeyValueCache cache(device, DType::f32, {.pages = 64});
///     auto gpt = make_gpt(init.for_inference(), sizes, with_cache({}, cache));
///     const Tensor logits = gpt->infer(cache.begin(pass));   // (wanted, 1, V)
///
/// Each layer of attention on this device has its pages in the cache, (pages, page_rows,
/// 2 g w), which count as MemoryCategory::cache and are allocated when the layer is made.
class KeyValueCache {
  public:
    /// Throws UsageError unless both sizes are positive.
    KeyValueCache(Device& device, DType dtype, const CacheSizes& sizes);

    Device& device() const { return device_; }
    const CacheSizes& sizes() const { return sizes_; }

    /// Says which tokens go through the model next: uploads their ids, which it gives as
    /// (rows, 1), their positions, and the rows that are wanted; 4 bytes each. Throws
    /// UsageError unless there are as many ids as rows, and a wanted row among them.
    Tensor begin(const Pass& pass, SourceLine at = SourceLine::here());
    /// Does so without ids, on a device that has no table of tokens.
    void enter(const Pass& pass, SourceLine at = SourceLine::here());

    /// The pass that has begun; none before the first.
    const PagedTokensRef& tokens() const { return tokens_; }
    const Tensor& wanted() const { return wanted_; }
    const std::shared_ptr<RowPlaces>& places() const { return places_; }

    /// For a layer that is being made: its pages, of so many columns.
    Tensor add_layer(std::int64_t columns);
    /// The pages of all layers that have been made.
    const std::vector<Tensor>& layers() const { return layers_; }
    /// A tensor for what all layers have of so many tokens, (layers tokens, columns).
    /// Throws UsageError unless there are layers, of equally many columns.
    Tensor empty_tokens(std::int64_t tokens, SourceLine at = SourceLine::here()) const;

    /// For layers: throws UsageError if no pass has begun.
    void require_pass(SourceLine at) const;

  private:
    Tensor uploaded(const std::vector<std::int32_t>& numbers, SourceLine at) const;

    Device& device_;
    DType dtype_;
    CacheSizes sizes_;
    PagedTokensRef tokens_;
    Tensor wanted_;
    std::shared_ptr<RowPlaces> places_ = std::make_shared<RowPlaces>();
    std::vector<Tensor> layers_;
};

/// A kit whose attention reads and writes a cache, whose positions are those of the pass,
/// and whose head computes the wanted rows alone. It goes around others: with a kit of
/// tensor parallelism a rank's cache has the keys of its own heads. Its models only
/// infer: forward is refused.
GptKit with_cache(GptKit kit, KeyValueCache& cache);
/// A kit whose positions are those of the pass, and whose head computes the wanted rows
/// alone, whatever its attention is.
GptKit with_wanted_rows(GptKit kit, KeyValueCache& cache);

}  // namespace lockstep
