#include <algorithm>
#include <limits>

#include "lessons/assignments/decode/grading/given.hpp"
#include "src/course/task.hpp"

namespace lockstep {

namespace {

using Generate = std::vector<Tokens> (*)(Rank&, const Gpt&, const std::vector<Prompt>&,
                                         std::int64_t);

/// Leaves what follows each prompt: a row for each, which ends with -1 where there are no
/// more.
Task generates(Generate generate) {
    return [generate](Rank& rank, const TaskInputs& in, TaskOutputs& out) {
        const auto asked = lessons::decode::from_numbers(in.numbers);
        const Gpt gpt = given::random_gpt(rank.device(), asked.sizes,
                                          static_cast<std::uint64_t>(asked.seed));
        std::vector<Tokens> tokens =
            generate(rank, gpt, asked.drawn_prompts(), asked.rules.page_rows);
        tokens.resize(asked.prompts.size());
        std::size_t most = 1;
        for (const Tokens& each : tokens)
            most = std::max(most, each.size());
        Tokens all;
        for (const Tokens& each : tokens) {
            all.insert(all.end(), each.begin(), each.end());
            all.resize(all.size() + most - each.size(), -1);
        }
        out.tensors["tokens"] = rank.device().upload(HostTensor::of<std::int32_t>(
            {std::ssize(tokens), static_cast<std::int64_t>(most)}, all));
    };
}

/// Asks a batcher for passes, to each of which requests come as they are to. Leaves the
/// pages that are free in the end; then, share by share, its pass, its request, its first
/// token, how many, how many pages, and these. What is too large is the largest number.
void batch(Rank& /*rank*/, const TaskInputs& in, TaskOutputs& out) {
    constexpr std::size_t kLongest = 1 << 20;
    const auto asked = lessons::decode::from_numbers(in.numbers);
    const auto batcher = adapters::make_batcher(asked.rules);
    std::vector<std::int32_t> plan{0};
    const auto number = [](std::int64_t value) {
        using Limits = std::numeric_limits<std::int32_t>;
        return static_cast<std::int32_t>(
            std::clamp<std::int64_t>(value, Limits::min(), Limits::max()));
    };
    std::size_t added = 0;
    for (std::int64_t pass = 0; pass < asked.passes && plan.size() < kLongest; ++pass) {
        for (; added < asked.prompts.size() && asked.prompts[added].arrival <= pass;
             ++added)
            batcher->add({static_cast<std::int64_t>(added), asked.prompts[added].prompt,
                          asked.prompts[added].output});
        for (const auto& [request, tokens] : batcher->next()) {
            for (const std::int64_t value : {pass, request, tokens.first, tokens.count,
                                             std::int64_t{std::ssize(tokens.pages)}})
                plan.push_back(number(value));
            plan.insert(plan.end(), tokens.pages.begin(), tokens.pages.end());
        }
    }
    plan.front() = number(batcher->free_pages());
    out.values["plan"] = HostTensor::of<std::int32_t>({std::ssize(plan)}, plan);
}

}  // namespace

Tasks tasks() {
    return {{"generate", generates(adapters::generate)},
            {"generate shared", generates(adapters::generate_shared)},
            {"batch", batch}};
}

}  // namespace lockstep
