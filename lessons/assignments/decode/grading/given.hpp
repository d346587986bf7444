#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/decode/handout/adapters.hpp"

// How a case goes from the grader to a rank's process: as numbers.

namespace lockstep::lessons::decode {

using Numbers = std::map<std::string, std::int64_t>;

/// The tokens that a prompt has, and those that are to follow.
struct Lengths {
    std::int64_t prompt = 1;
    std::int64_t output = 1;

    /// The last token is never computed.
    std::int64_t stored() const { return prompt + output - 1; }
};

/// A GPT generates after some prompts.
struct GenerationCase {
    Sizes sizes;
    std::vector<Lengths> prompts;
    std::int64_t page_rows = 4;
    int ranks = 1;
    std::int64_t seed = 1;

    std::vector<Prompt> drawn_prompts() const {
        std::vector<Prompt> drawn;
        for (const Lengths& of : prompts)
            drawn.push_back(given::random_prompt(sizes, static_cast<std::uint64_t>(seed),
                                                 std::ssize(drawn), of.prompt,
                                                 of.output));
        return drawn;
    }
};

/// A request, and the pass before which it comes.
struct Arrival {
    std::int64_t pass = 0;
    std::int64_t prompt = 1;
    std::int64_t output = 1;
};

/// Requests in the order of their arrivals, which are numbered likewise from 0 up.
struct BatchingCase {
    Rules rules;
    std::vector<Arrival> requests;
    std::int64_t passes = 0;  ///< that a batcher is asked for
};

template <typename Visit>
void each_number(GenerationCase& of, Visit visit) {
    visit("vocabulary", of.sizes.vocabulary);
    visit("context", of.sizes.context);
    visit("layers", of.sizes.layers);
    visit("hidden", of.sizes.hidden);
    visit("heads", of.sizes.heads);
    visit("key heads", of.sizes.key_heads);
    visit("width", of.sizes.width);
    visit("inner", of.sizes.inner);
    visit("page rows", of.page_rows);
    visit("seed", of.seed);
    auto count = std::ssize(of.prompts);
    visit("prompts", count);
    of.prompts.resize(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < of.prompts.size(); ++i) {
        visit(fmt::format("prompt {}", i), of.prompts[i].prompt);
        visit(fmt::format("output {}", i), of.prompts[i].output);
    }
}

template <typename Visit>
void each_number(BatchingCase& of, Visit visit) {
    visit("rows", of.rules.rows);
    visit("sequences", of.rules.sequences);
    visit("pages", of.rules.pages);
    visit("page rows", of.rules.page_rows);
    visit("passes", of.passes);
    auto count = std::ssize(of.requests);
    visit("requests", count);
    of.requests.resize(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < of.requests.size(); ++i) {
        visit(fmt::format("pass {}", i), of.requests[i].pass);
        visit(fmt::format("prompt {}", i), of.requests[i].prompt);
        visit(fmt::format("output {}", i), of.requests[i].output);
    }
}

template <typename Given>
Numbers numbers_of(Given of) {
    Numbers numbers;
    each_number(of, [&](const std::string& name, const auto& value) {
        numbers[name] = static_cast<std::int64_t>(value);
    });
    return numbers;
}

template <typename Given>
Given from_numbers(const Numbers& numbers) {
    Given of;
    each_number(of, [&]<typename T>(const std::string& name, T& value) {
        value = static_cast<T>(numbers.at(name));
    });
    return of;
}

}  // namespace lockstep::lessons::decode
