#include <algorithm>
#include <iterator>

#include "decode.hpp"

using namespace lockstep;

namespace {

/// A sequence that grows, and the pages of its keys and values.
struct Sequence {
    Tokens ids;
    std::size_t end = 0;  ///< number of tokens when it is complete
    std::vector<std::int32_t> pages;
    std::size_t computed = 0;  ///< tokens that have gone through the GPT

    bool lacks_tokens() const { return ids.size() < end; }
};

/// A layer's keys and values. Each tensor is (pages, rows of a page, g w).
struct Pages {
    Tensor keys;
    Tensor values;
};

class Decoder {
  public:
    Decoder(Device& device, const Gpt& gpt, std::int64_t pages, std::int64_t page_rows,
            const SumOverRanks& sum)
        : device_(device), gpt_(gpt), sum_(sum) {
        const MemoryScope scope(device, MemoryCategory::cache);
        const Shape shape{pages, page_rows, gpt.sizes.key_heads * gpt.sizes.width};
        for (std::size_t layer = 0; layer < gpt.blocks.size(); ++layer)
            cache_.push_back(
                {device.empty(shape, DType::f64), device.empty(shape, DType::f64)});
    }

    /// Runs all tokens that have not been computed yet through the GPT, in one pass. Each
    /// sequence that lacks tokens gets its next token.
    void step(std::vector<Sequence>& sequences) {
        auto pass = std::make_shared<PagedTokens>();
        Tokens ids, places, last;
        for (Sequence& sequence : sequences) {
            if (!sequence.lacks_tokens()) continue;
            const auto count =
                static_cast<std::int64_t>(sequence.ids.size() - sequence.computed);
            pass->sequences.push_back(
                {static_cast<std::int64_t>(sequence.computed), count, sequence.pages});
            for (; sequence.computed < sequence.ids.size(); ++sequence.computed) {
                ids.push_back(sequence.ids[sequence.computed]);
                places.push_back(static_cast<std::int32_t>(sequence.computed));
            }
            last.push_back(static_cast<std::int32_t>(ids.size()) - 1);
        }
        Tensor x = given::embedded(device_, gpt_, ids, places);
        for (std::size_t layer = 0; layer < gpt_.blocks.size(); ++layer) {
            attend(x, gpt_.blocks[layer], cache_[layer], pass);
            apply_mlp(x, gpt_.blocks[layer]);
        }
        const Tokens found = next_tokens(x, last);
        std::size_t next = 0;
        for (Sequence& sequence : sequences)
            if (sequence.lacks_tokens()) sequence.ids.push_back(found[next++]);
    }

  private:
    /// Stores the keys and values of x's rows, and adds the output of attention to x.
    void attend(const Tensor& x, const Block& block, const Pages& pages,
                const PagedTokensRef& pass) {
        const Sizes& sizes = gpt_.sizes;
        const Tensor normed = device_.rms_norm(x, block.norm_1).y;
        const auto projected = [&](const Tensor& matrix) {
            return device_.matmul(normed, matrix, {.transpose_b = true});
        };
        device_.store_pages(pages.keys, projected(block.keys), 0, pass);
        device_.store_pages(pages.values, projected(block.values), 0, pass);
        const Tensor found =
            device_.attend_pages({{projected(block.queries), sizes.heads, sizes.width},
                                  {pages.keys, sizes.key_heads, sizes.width},
                                  {pages.values, sizes.key_heads, sizes.width}},
                                 pass, given::score_factor(sizes));
        add_sum(x, device_.matmul(found, block.out));
    }

    void apply_mlp(const Tensor& x, const Block& block) {
        const Tensor normed = device_.rms_norm(x, block.norm_2).y;
        const Tensor within =
            device_.gelu(device_.matmul(normed, block.up, {.transpose_b = true}));
        add_sum(x, device_.matmul(within, block.down));
    }

    void add_sum(const Tensor& x, const Tensor& terms) {
        if (sum_) sum_(terms);
        device_.add(x, terms);
    }

    /// Returns the tokens that follow these rows.
    Tokens next_tokens(const Tensor& x, const Tokens& rows) {
        const Tensor wanted = device_.empty(
            {static_cast<std::int64_t>(rows.size()), 1, gpt_.sizes.hidden}, DType::f64);
        device_.take_rows(wanted, x, given::uploaded(device_, rows));
        return given::largest(device_, given::logits(device_, gpt_, wanted));
    }

    Device& device_;
    const Gpt& gpt_;
    const SumOverRanks& sum_;
    std::vector<Pages> cache_;
};

/// Returns sequences with pages for all of their tokens except the last.
std::vector<Sequence> sequences_of(const std::vector<Prompt>& prompts,
                                   std::int64_t page_rows, std::int32_t& pages) {
    std::vector<Sequence> sequences;
    for (const Prompt& prompt : prompts) {
        Sequence& sequence = sequences.emplace_back();
        sequence.ids = prompt.ids;
        sequence.end = prompt.ids.size() + static_cast<std::size_t>(prompt.output);
        const auto stored = static_cast<std::int64_t>(sequence.end) - 1;
        for (std::int64_t row = 0; row < stored; row += page_rows)
            sequence.pages.push_back(pages++);
    }
    return sequences;
}

}  // namespace

std::vector<Tokens> generate_with(Device& device, const Gpt& own,
                                  const std::vector<Prompt>& prompts,
                                  std::int64_t page_rows, const SumOverRanks& sum) {
    std::int32_t pages = 0;
    std::vector<Sequence> sequences = sequences_of(prompts, page_rows, pages);
    Decoder decoder(device, own, pages, page_rows, sum);
    while (std::ranges::any_of(sequences, &Sequence::lacks_tokens))
        decoder.step(sequences);

    std::vector<Tokens> generated;
    for (std::size_t i = 0; i < prompts.size(); ++i)
        generated.emplace_back(sequences[i].ids.begin() + std::ssize(prompts[i].ids),
                               sequences[i].ids.end());
    return generated;
}

std::vector<Tokens> generate(Rank& rank, const Gpt& gpt,
                             const std::vector<Prompt>& prompts, std::int64_t page_rows) {
    return generate_with(rank.device(), gpt, prompts, page_rows, nullptr);
}
