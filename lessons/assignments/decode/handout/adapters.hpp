#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/comm/rank.hpp"
#include "src/device/paged_tokens.hpp"

// Tests and the grader call only these functions, with these types. Your own functions
// may have any signature: adapters.cpp calls them.

using Tokens = std::vector<std::int32_t>;

/// The sizes of a GPT. a / g heads of queries share one head of keys and values.
struct Sizes {
    std::int64_t vocabulary = 0;  ///< V
    std::int64_t context = 0;     ///< C, the longest sequence
    std::int64_t layers = 0;      ///< L
    std::int64_t hidden = 0;      ///< h
    std::int64_t heads = 0;       ///< a, heads of queries
    std::int64_t key_heads = 0;   ///< g, heads of keys and values
    std::int64_t width = 0;       ///< w, the columns of a head
    std::int64_t inner = 0;       ///< c, the columns inside the MLP
};

/// The weights of a block, f64. Each row of a matrix belongs to a column of a head or of
/// the MLP. The rows of a head are together, so consecutive heads are a range of rows.
struct Block {
    lockstep::Tensor norm_1;   ///< (h)
    lockstep::Tensor queries;  ///< (a w, h): x is multiplied by the transpose
    lockstep::Tensor keys;     ///< (g w, h), likewise
    lockstep::Tensor values;   ///< (g w, h), likewise
    lockstep::Tensor out;      ///< (a w, h): the output of heads is multiplied by it
    lockstep::Tensor norm_2;   ///< (h)
    lockstep::Tensor up;       ///< (c, h): x is multiplied by the transpose
    lockstep::Tensor down;     ///< (c, h): the columns in the MLP are multiplied by it
};

struct Gpt {
    Sizes sizes;
    lockstep::Tensor tokens;  ///< (V, h)
    lockstep::Tensor places;  ///< (C, h)
    std::vector<Block> blocks;
    lockstep::Tensor norm;  ///< (h)
    lockstep::Tensor head;  ///< (V, h)
};

/// A prompt of one or more tokens, and the number of tokens that follow (one or more).
/// Together they fit into the context.
struct Prompt {
    Tokens ids;
    std::int64_t output = 1;
};

// A batcher plans passes. It is told how long sequences are, but not their tokens.

/// The limits of a pass, and of the cache.
struct Rules {
    std::int64_t rows = 0;       ///< R, maximum rows of a pass; at least S
    std::int64_t sequences = 0;  ///< S, maximum requests under way at once
    std::int64_t pages = 0;      ///< P, pages of the cache, numbered from 0
    std::int64_t page_rows = 0;  ///< tokens that a page holds
};

/// The length of a prompt, and the number of tokens that follow. All tokens except the
/// last, which is never computed, fit on the pages of the cache.
struct Request {
    std::int64_t id = 0;
    std::int64_t prompt = 1;
    std::int64_t output = 1;
};

/// The rows of one request in a pass: which tokens of the request they are, and all of
/// the request's pages.
struct Share {
    std::int64_t request = 0;
    lockstep::PagedSequence tokens;
};

/// The interface by which the grader calls a batcher. The grader adds requests between
/// passes, and asks for the next pass when the previous pass has been computed.
class Batching {
  public:
    virtual ~Batching() = default;
    virtual void add(const Request& request) = 0;
    /// Returns the rows of the next pass; none if no request is under way or waits.
    virtual std::vector<Share> next() = 0;
    /// Returns the number of free pages. Called after a next() that returned no rows.
    virtual std::int64_t free_pages() const = 0;
};

namespace adapters {

/// Returns the tokens that follow each prompt, in the order of the prompts.
std::vector<Tokens> generate(lockstep::Rank& rank, const Gpt& gpt,
                             const std::vector<Prompt>& prompts, std::int64_t page_rows);
/// Returns the same tokens, computed by all ranks together. Each rank gets the whole GPT
/// and all prompts.
std::vector<Tokens> generate_shared(lockstep::Rank& rank, const Gpt& gpt,
                                    const std::vector<Prompt>& prompts,
                                    std::int64_t page_rows);
std::unique_ptr<Batching> make_batcher(const Rules& rules);

}  // namespace adapters

// You are given the parts of a GPT that are the same with a cache, and a function that
// generates without a cache. Each row of x (n, 1, h) is a token of any sequence.

namespace given {

/// Returns the numbers as a tensor (n, 1), i32.
inline lockstep::Tensor uploaded(lockstep::Device& device, const Tokens& numbers) {
    const auto count = static_cast<std::int64_t>(numbers.size());
    return device.upload(lockstep::HostTensor::of<std::int32_t>({count, 1}, numbers));
}

/// Returns x for tokens with these ids, at these positions (from 0) in their sequences.
inline lockstep::Tensor embedded(lockstep::Device& device, const Gpt& gpt,
                                 const Tokens& ids, const Tokens& places) {
    lockstep::Tensor x = device.embedding(gpt.tokens, uploaded(device, ids));
    device.add(x, device.embedding(gpt.places, uploaded(device, places)));
    return x;
}

/// Returns the logits (n, 1, V) of the token after each row. x: the last block's output.
inline lockstep::Tensor logits(lockstep::Device& device, const Gpt& gpt,
                               const lockstep::Tensor& x) {
    return device.matmul(device.rms_norm(x, gpt.norm).y, gpt.head, {.transpose_b = true});
}

/// Returns, on the host, the token with the largest logit in each row.
inline Tokens largest(lockstep::Device& device, const lockstep::Tensor& logits) {
    const std::int64_t rows = logits.shape().matrix_rows();
    const lockstep::Tensor values = device.empty({rows, 1}, logits.dtype());
    const lockstep::Tensor ids = device.empty({rows, 1}, lockstep::DType::i32);
    device.top_k(values, ids, logits, 1);
    const lockstep::HostTensor found = device.download(ids);
    const auto tokens = found.values<std::int32_t>();
    return {tokens.begin(), tokens.end()};
}

inline double score_factor(const Sizes& sizes) {
    return 1 / std::sqrt(static_cast<double>(sizes.width));
}

/// Computes a block for one whole sequence, without a cache: x (n, 1, h) to (n, 1, h).
inline lockstep::Tensor block(lockstep::Device& device, const Sizes& sizes,
                              const Block& block, const lockstep::Tensor& x) {
    const lockstep::Tensor normed = device.rms_norm(x, block.norm_1).y;
    const auto projected = [&](const lockstep::Tensor& matrix) {
        return device.matmul(normed, matrix, {.transpose_b = true});
    };
    const lockstep::Heads queries{projected(block.queries), sizes.heads, sizes.width};
    const lockstep::Heads keys{projected(block.keys), sizes.key_heads, sizes.width};
    const lockstep::Heads values{projected(block.values), sizes.key_heads, sizes.width};
    const lockstep::Tensor weights = device.softmax(
        device.head_products(queries, keys, score_factor(sizes)), {.causal = true});
    lockstep::Tensor y = device.matmul(device.head_sums(weights, values), block.out);
    device.add(y, x);

    const lockstep::Tensor within = device.gelu(device.matmul(
        device.rms_norm(y, block.norm_2).y, block.up, {.transpose_b = true}));
    device.add(y, device.matmul(within, block.down));
    return y;
}

/// Returns the tokens after a prompt. Computes the whole sequence again for each token.
inline Tokens generate_anew(lockstep::Device& device, const Gpt& gpt,
                            const Prompt& prompt) {
    Tokens ids = prompt.ids, places;
    for (std::int64_t i = 0; i < prompt.output; ++i) {
        while (places.size() < ids.size())
            places.push_back(static_cast<std::int32_t>(places.size()));
        lockstep::Tensor x = embedded(device, gpt, ids, places);
        for (const Block& each : gpt.blocks)
            x = block(device, gpt.sizes, each, x);
        ids.push_back(largest(device, logits(device, gpt, x)).back());
    }
    return {ids.begin() + static_cast<std::ptrdiff_t>(prompt.ids.size()), ids.end()};
}

/// Returns a GPT of random weights. The same seed gives the same weights.
inline Gpt random_gpt(lockstep::Device& device, const Sizes& sizes, std::uint64_t seed) {
    const lockstep::MemoryScope scope(device, lockstep::MemoryCategory::parameters);
    const auto matrix = [&](const std::string& name, std::int64_t rows,
                            double deviation) {
        lockstep::Tensor values =
            device.empty({rows, sizes.hidden}, lockstep::DType::f64);
        device.random_normal(values, {seed, name}, 0, deviation);
        return values;
    };
    const auto ones = [&] {
        lockstep::Tensor values = device.empty({sizes.hidden}, lockstep::DType::f64);
        device.fill(values, 1);
        return values;
    };
    const auto root = [](std::int64_t size) {
        return 1 / std::sqrt(static_cast<double>(size));
    };
    const double from_hidden = root(sizes.hidden);
    const std::int64_t columns = sizes.heads * sizes.width;
    const std::int64_t key_columns = sizes.key_heads * sizes.width;
    Gpt gpt{sizes,
            matrix("tokens", sizes.vocabulary, 1),
            matrix("places", sizes.context, 1),
            {},
            ones(),
            matrix("head", sizes.vocabulary, from_hidden)};
    for (std::int64_t layer = 0; layer < sizes.layers; ++layer) {
        const std::string name = std::to_string(layer);
        gpt.blocks.push_back(
            {ones(), matrix(name + " queries", columns, 2 * from_hidden),
             matrix(name + " keys", key_columns, 2 * from_hidden),
             matrix(name + " values", key_columns, from_hidden),
             matrix(name + " out", columns, 4 * root(columns)), ones(),
             matrix(name + " up", sizes.inner, from_hidden),
             matrix(name + " down", sizes.inner, 4 * root(sizes.inner))});
    }
    return gpt;
}

/// Returns a prompt of random tokens, the same for the same seed and number.
inline Prompt random_prompt(const Sizes& sizes, std::uint64_t seed, std::int64_t number,
                            std::int64_t length, std::int64_t output) {
    const lockstep::RandomStream stream(seed, "prompt " + std::to_string(number));
    Prompt prompt{{}, output};
    for (std::int64_t i = 0; i < length; ++i)
        prompt.ids.push_back(
            static_cast<std::int32_t>(stream.bits(static_cast<std::uint64_t>(i)) %
                                      static_cast<std::uint64_t>(sizes.vocabulary)));
    return prompt;
}

}  // namespace given
