#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "src/device/paged_tokens.hpp"
#include "src/nn/gpt.hpp"

namespace lockstep {

/// Returns the bytes of a token's keys and values in all layers. A layer has 2 g w
/// numbers of a token, with g heads of keys and w columns per head. A layer of latent
/// attention has key_rank + rotary numbers, from which keys and values are made. In bf16
/// the sizes are 516,096 bytes for Llama 3.1 405B, 327,680 for Qwen2.5-72B and 70,272 for
/// DeepSeek-V3 (DeepSeek-AI 2025, 2505.09343, table 1).
std::int64_t cache_bytes_of_token(const GptSizes& sizes, DType dtype);

struct CacheSizes {
    std::int64_t pages = 0;       ///< of each layer
    std::int64_t page_rows = 16;  ///< tokens that a page holds
};

/// The tokens that a model computes at once. Several sequences may have rows in a pass,
/// one sequence's rows after the other's. A prompt has many rows; a sequence that is
/// being generated has one (Yu et al. 2022, Orca, OSDI, section 3: selective batching).
struct Pass {
    PagedTokens tokens;                ///< which tokens the rows are, and on which pages
    std::vector<std::int32_t> ids;     ///< of all rows
    std::vector<std::int32_t> wanted;  ///< rows whose logits are asked for
    std::int64_t page_rows = 0;        ///< rows of each page of the pool; 0: unknown
    std::vector<std::int64_t> requests{};  ///< the request of each sequence, or empty
};

/// Returns a pass of equal sequences, for measurements. Each sequence has its own pages,
/// from page 0 on. Its first `before` tokens are in the cache already, and the pass
/// computes the next `rows` tokens. All ids are 0.
Pass equal_pass(std::int64_t sequences, std::int64_t before, std::int64_t rows,
                std::int64_t page_rows);

/// Keys and values of all tokens that a model has seen, on pages. With them, a new token
/// costs only its own row, and not the rows of all earlier tokens again (Pope et al.
/// 2022, 2211.05102, section 2). Any page may have the tokens of any sequence, and
/// several sequences may share a page. PagePool says which sequence has which page.
///
/// with_cache() puts the cache into a model. Then the model infers, pass by pass:
///
///     KeyValueCache cache(device, DType::f32, {.pages = 64});
///     auto gpt = make_gpt(init.for_inference(), sizes, with_cache({}, cache));
///     const Tensor logits = gpt->infer(cache.begin(pass));   // (wanted, 1, V)
///
/// Each layer of attention on this device has its pages in the cache: (pages, page_rows,
/// 2 g w). The pages belong to MemoryCategory::cache, and are allocated with the layer.
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
    /// Like begin(), but does not upload ids: for a device without an embedding table.
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
/// and the head computes only the wanted rows. Call it last, on a kit for tensor or
/// expert parallelism. With tensor parallelism, a rank's cache has only the keys of the
/// rank's own heads. Models made with the kit can only infer; forward throws.
GptKit with_cache(GptKit kit, KeyValueCache& cache);
/// Returns the kit with unchanged attention, but positions come from the pass, and the
/// head computes only the wanted rows.
GptKit with_wanted_rows(GptKit kit, KeyValueCache& cache);

}  // namespace lockstep
