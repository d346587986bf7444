#include "adapters.hpp"

#include "decode.hpp"

using namespace lockstep;

std::vector<Tokens> adapters::generate(Rank& rank, const Gpt& gpt,
                                       const std::vector<Prompt>& prompts,
                                       std::int64_t page_rows) {
    return ::generate(rank, gpt, prompts, page_rows);
}

std::vector<Tokens> adapters::generate_shared(Rank& rank, const Gpt& gpt,
                                              const std::vector<Prompt>& prompts,
                                              std::int64_t page_rows) {
    return ::generate_shared(rank, gpt, prompts, page_rows);
}

std::unique_ptr<Batching> adapters::make_batcher(const Rules& rules) {
    return ::make_batcher(rules);
}
