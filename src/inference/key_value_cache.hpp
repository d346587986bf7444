#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "src/device/paged_tokens.hpp"
#include "src/nn/gpt.hpp"

namespace lockstep {

/// Returns the bytes of a token's keys and values in all layers. A layer has 2 g w
/// numbers, with g heads of keys and w columns per head. A layer of latent attention has
/// key_rank + rotary numbers, from which keys and values are made. In bf16 the sizes are
/// 516,096 bytes for Llama 3.1 405B, 327,680 for Qwen2.5-72B and 70,272 for DeepSeek-V3
/// (DeepSeek-AI 2025, 2505.09343, table 1).
std::int64_t cache_bytes_of_token(const GptSizes& sizes, DType dtype);

struct CacheSizes {
    std::int64_t pages = 0;       ///< of each layer
    std::int64_t page_rows = 16;  ///< tokens that a page holds
};

/// The tokens that go through a model at once: of several sequences, the rows of one
/// sequence behind the rows of another. A prompt has many tokens; a sequence that is
/// being generated has one (Yu et al. 2022, Orca, OSDI, section 3: selective batching).
struct Pass {
    PagedTokens tokens;                ///< which tokens the rows are, and on which pages
    std::vector<std::int32_t> ids;     ///< of all rows
    std::vector<std::int32_t> wanted;  ///< rows whose logits are asked for
    std::int64_t page_rows = 0;        ///< of the pool that has the pages; 0: unknown
    std::vector<std::int64_t> requests{};  ///< one for each sequence, if they are known
};

/// Returns a pass of equal sequences, for measurements. Each sequence has its own pages,
/// from page 0 on, and computes `rows` tokens behind `before` tokens that are in the
/// cache. All ids are 0.
Pass equal_pass(std::int64_t sequences, std::int64_t before, std::int64_t rows,
                std::int64_t page_rows);

/// Keys and values of all tokens that a model has seen, on pages. With them, a new token
/// costs only its own row, and not the rows of all earlier tokens again (Pope et al.
/// 2022, 2211.05102, section 2). Any page may have the tokens of any sequence, and
/// several sequences may share a page. PagePool says which sequence has which page.
///
/// A kit puts the cache into a model. Then the model infers, pass by pass:
///
///     KeyValueCache cache(device, DType::f32, {.pages = 64});
///     auto gpt = make_gpt(init.for_inference(), sizes, with_cache({}, cache));
///     const Tensor logits = gpt->infer(cache.begin(pass));   // (wanted, 1, V)
///
/// Each layer of attention on this device has its pages in the cache: (pages, page_rows,
/// 2 g w). They count as MemoryCategory::cache, and are allocated with the layer.
class KeyValueCache {
  public:
    /// Throws UsageError unless both sizes are positive.
    KeyValueCache(Device& device, DType dtype, const CacheSizes& sizes);

    Device& device() const { return device_; }
    const CacheSizes& sizes() const { return sizes_; }

    /// Sets the tokens that go through the model next. Uploads their ids, their positions
    /// and the wanted rows, 4 bytes each, and returns the ids as (rows, 1). Throws
    /// UsageError unless there is one id for each row, and each wanted row is one of the
    /// rows.
    Tensor begin(const Pass& pass, SourceLine at = SourceLine::here());
    /// Like begin(), but without ids, on a device that has no table of tokens.
    void enter(const Pass& pass, SourceLine at = SourceLine::here());

    /// The pass that has begun; none before the first.
    const PagedTokensRef& tokens() const { return tokens_; }
    const Tensor& wanted() const { return wanted_; }
    const std::shared_ptr<RowPlaces>& places() const { return places_; }

    /// Makes the pages of a new layer, with `columns` columns.
    Tensor add_layer(std::int64_t columns);
    /// The pages of all layers that have been made.
    const std::vector<Tensor>& layers() const { return layers_; }
    /// Returns a tensor for `tokens` tokens of all layers, (layers tokens, columns).
    /// Throws UsageError if there are no layers, or if their columns differ.
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

/// Returns a kit whose attention reads and writes a cache. Positions come from the pass,
/// and the head computes only the wanted rows. It is put around other kits. With a kit of
/// tensor parallelism, a rank's cache has the keys of the rank's own heads. Models of the
/// kit only infer; forward throws.
GptKit with_cache(GptKit kit, KeyValueCache& cache);
/// Returns a kit with any attention. Positions come from the pass, and the head computes
/// only the wanted rows.
GptKit with_wanted_rows(GptKit kit, KeyValueCache& cache);

}  // namespace lockstep
