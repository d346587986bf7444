#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "adapters.hpp"
#include "src/course/task.hpp"

namespace lockstep {

namespace {

using Generate = std::vector<Tokens> (*)(Rank&, const Gpt&, const std::vector<Prompt>&,
                                         std::int64_t);

/// Returns the input "WHAT I", a number that belongs to prompt or request i.
std::int64_t number_of(const TaskInputs& in, const char* what, std::int64_t i) {
    return in.number(fmt::format("{} {}", what, i));
}

/// Returns a task that outputs the tokens after each prompt: a row for each prompt, which
/// ends with at least one -1.
Task generates(Generate generate) {
    return [generate](Rank& rank, const TaskInputs& in, TaskOutputs& out) {
        const Sizes sizes{in.number("vocabulary"), in.number("context"),
                          in.number("layers"),     in.number("hidden"),
                          in.number("heads"),      in.number("key heads"),
                          in.number("width"),      in.number("inner")};
        const auto seed = static_cast<std::uint64_t>(in.number("seed"));
        std::vector<Prompt> prompts;
        std::int64_t columns = 1;
        for (std::int64_t i = 0; i < in.number("prompts"); ++i) {
            const std::int64_t output = number_of(in, "output", i);
            prompts.push_back(
                given::random_prompt(sizes, seed, i, number_of(in, "prompt", i), output));
            columns = std::max(columns, output + 1);
        }
        std::vector<Tokens> tokens =
            generate(rank, given::random_gpt(rank.device(), sizes, seed), prompts,
                     in.number("page rows"));
        tokens.resize(prompts.size());
        Tokens all;
        for (Tokens& each : tokens) {
            each.resize(static_cast<std::size_t>(columns), -1);
            all.insert(all.end(), each.begin(), each.end());
        }
        out.tensors["tokens"] = rank.device().upload(
            HostTensor::of<std::int32_t>({std::ssize(tokens), columns}, all));
    };
}

/// Converts a number to i32; a number out of range becomes the nearest limit.
std::int32_t as_i32(std::int64_t value) {
    using Limits = std::numeric_limits<std::int32_t>;
    return static_cast<std::int32_t>(
        std::clamp<std::int64_t>(value, Limits::min(), Limits::max()));
}

/// Adds requests to a batcher when they arrive, and lets it plan passes. Outputs how many
/// pages are free in the end, and a row for each share: pass, request, first token, count
/// of tokens, and pages. A row has room for all pages of the cache; -1 is no page.
void batch(Rank& /*rank*/, const TaskInputs& in, TaskOutputs& out) {
    constexpr std::size_t kLongest = 1 << 20;
    const Rules rules{in.number("rows"), in.number("sequences"), in.number("pages"),
                      in.number("page rows")};
    const auto batcher = adapters::make_batcher(rules);
    const std::int64_t columns = 4 + rules.pages;
    std::vector<std::int32_t> plan;
    std::int64_t shares = 0;
    for (std::int64_t pass = 0; pass < in.number("passes") && plan.size() < kLongest;
         ++pass) {
        for (std::int64_t i = 0; i < in.number("prompts"); ++i)
            if (number_of(in, "arrival", i) == pass)
                batcher->add({i, number_of(in, "prompt", i), number_of(in, "output", i)});
        for (const auto& [request, tokens] : batcher->next()) {
            for (const std::int64_t value : {pass, request, tokens.first, tokens.count})
                plan.push_back(as_i32(value));
            plan.insert(plan.end(), tokens.pages.begin(), tokens.pages.end());
            plan.resize(static_cast<std::size_t>(++shares * columns), -1);
        }
    }
    out.values["plan"] = HostTensor::of<std::int32_t>({shares, columns}, plan);
    out.values["free pages"] =
        HostTensor::of<std::int32_t>({1}, std::vector{as_i32(batcher->free_pages())});
}

}  // namespace

Tasks tasks() {
    return {{"generate", generates(adapters::generate)},
            {"generate shared", generates(adapters::generate_shared)},
            {"batch", batch}};
}

}  // namespace lockstep
