#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/decode/handout/adapters.hpp"

// How a case goes from the grader to a rank's process: as numbers.

namespace lockstep::lessons::decode {

using Numbers = std::map<std::string, std::int64_t>;

/// The tokens that a prompt has, those that are to follow, and the pass before which a
/// batcher gets it.
struct Asked {
    std::int64_t prompt = 1;
    std::int64_t output = 1;
    std::int64_t arrival = 0;

    /// The last token is never computed.
    std::int64_t stored() const { return prompt + output - 1; }
};

/// A GPT generates after prompts, or a batcher plans passes for them. They are numbered
/// from 0 up, in the order of their arrivals.
struct Case {
    Sizes sizes{};
    Rules rules{.page_rows = 4};
    std::vector<Asked> prompts{};
    std::int64_t passes = 0;  ///< that a batcher is asked for
    std::int64_t seed = 1;
    int ranks = 1;

    std::vector<Prompt> drawn_prompts() const {
        std::vector<Prompt> drawn;
        for (const Asked& each : prompts)
            drawn.push_back(given::random_prompt(sizes, static_cast<std::uint64_t>(seed),
                                                 std::ssize(drawn), each.prompt,
                                                 each.output));
        return drawn;
    }
};

inline void each_number(
    Case& drawn, const std::function<void(const std::string&, std::int64_t&)>& visit) {
    auto& [vocabulary, context, layers, hidden, heads, key_heads, width, inner] =
        drawn.sizes;
    std::int64_t count = std::ssize(drawn.prompts);
    for (const auto& [name, number] :
         std::initializer_list<std::pair<const char*, std::int64_t*>>{
             {"vocabulary", &vocabulary},
             {"context", &context},
             {"layers", &layers},
             {"hidden", &hidden},
             {"heads", &heads},
             {"key heads", &key_heads},
             {"width", &width},
             {"inner", &inner},
             {"rows", &drawn.rules.rows},
             {"sequences", &drawn.rules.sequences},
             {"pages", &drawn.rules.pages},
             {"page rows", &drawn.rules.page_rows},
             {"passes", &drawn.passes},
             {"seed", &drawn.seed},
             {"prompts", &count}})
        visit(name, *number);
    drawn.prompts.resize(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < drawn.prompts.size(); ++i) {
        visit(fmt::format("prompt {}", i), drawn.prompts[i].prompt);
        visit(fmt::format("output {}", i), drawn.prompts[i].output);
        visit(fmt::format("arrival {}", i), drawn.prompts[i].arrival);
    }
}

inline Numbers numbers_of(Case drawn) {
    Numbers numbers;
    each_number(drawn, [&](const std::string& name, std::int64_t& number) {
        numbers[name] = number;
    });
    return numbers;
}

inline Case from_numbers(const Numbers& numbers) {
    Case drawn;
    each_number(drawn, [&](const std::string& name, std::int64_t& number) {
        number = numbers.at(name);
    });
    return drawn;
}

}  // namespace lockstep::lessons::decode
